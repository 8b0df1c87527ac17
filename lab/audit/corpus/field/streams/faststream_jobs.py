"""FastStream on NATS, RabbitMQ and Kafka; nats-py by hand."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta, timezone

import nats
from faststream import AckPolicy, Context, FastStream, Logger
from faststream.kafka import KafkaBroker, KafkaMessage
from faststream.nats import NatsBroker
from faststream.rabbit import RabbitBroker, RabbitMessage
from httpx import AsyncClient
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from pydantic import BaseModel
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from .schema import Consumed, Shipment

log = logging.getLogger(__name__)
broker = KafkaBroker("localhost:9092")
rabbit = RabbitBroker("amqp://")
natsy = NatsBroker()
app = FastStream(broker)
Sessions = async_sessionmaker(create_async_engine("postgresql+asyncpg://x"))
http = AsyncClient(base_url="https://port.example")


class Arrival(BaseModel):
    notification_id: str
    vessel: str


@broker.subscriber("arrivals", group_id="port")
async def arrived(event: Arrival) -> None:
    await http.post("/berths", json=event.model_dump())  # bad: OG001


@broker.subscriber("arrivals", group_id="port2")
@broker.publisher("berths")
async def arrived_forward(event: Arrival, logger: Logger) -> dict:
    logger.info("forwarding %s", event.vessel)
    return {"vessel": event.vessel}


@broker.subscriber("departures", group_id="port")
async def departed(event: Arrival, session: AsyncSession = Context()) -> None:  # good: OG001, OG004, OG006
    async with Sessions.begin() as db:
        statement = insert(Consumed).values(key=event.notification_id).on_conflict_do_nothing().returning(Consumed.key)
        if (await db.execute(statement)).scalar_one_or_none() is None:
            log.info("departure %s is known", event.notification_id)
            return
        db.add(Shipment(vessel=event.vessel))


@rabbit.subscriber("tugs", ack_policy=AckPolicy.ACK_FIRST)  # bad: OG007
async def tug(body: dict) -> None:
    async with Sessions.begin() as db:
        await db.merge(Shipment(id=body["id"], vessel=body["vessel"]))


@rabbit.subscriber("pilots", ack_policy=AckPolicy.MANUAL)
async def pilot(body: dict, message: RabbitMessage) -> None:
    await message.ack()  # bad: OG007
    await http.put(f"/pilots/{body['id']}", json=body)


@rabbit.subscriber("cranes", ack_policy=AckPolicy.MANUAL)
async def crane(body: dict, message: RabbitMessage) -> None:  # good: OG007, OG008
    try:
        await http.put(f"/cranes/{body['id']}", json=body)
    except Exception:
        await message.nack(requeue=True)
        raise
    await message.ack()


@natsy.subscriber("gates", stream="port")
async def gate_opened(event: Arrival) -> None:
    async with Sessions() as db:
        recent = datetime.now(timezone.utc) - timedelta(minutes=30)
        known = await db.get(Consumed, event.notification_id)  # bad: OG005
        if known and known.at > recent:  # bad: OG003
            log.info("%s again", event.notification_id)
            return
        await http.post("/gates", json={"vessel": event.vessel})
        db.add(Consumed(key=event.notification_id))
        await db.commit()


async def on_yard(msg: Msg) -> None:
    body = json.loads(msg.data)
    await http.post("/yard", json=body)  # bad: OG001
    await msg.ack()


async def on_yard_sequence(msg: Msg) -> None:
    body = json.loads(msg.data)
    key = str(msg.metadata.num_delivered) + body["container"]
    async with Sessions.begin() as db:
        result = await db.execute(insert(Consumed).values(key=key).on_conflict_do_nothing())  # bad: OG002
        if result.rowcount == 0:
            log.info("again")
            await msg.ack()
            return
        db.add(Shipment(vessel=body["container"]))
    await msg.ack()


async def on_yard_good(msg: Msg) -> None:  # good: OG001, OG002, OG007, OG008
    body = json.loads(msg.data)
    try:
        async with Sessions.begin() as db:
            result = await db.execute(insert(Consumed).values(key=body["event_id"]).on_conflict_do_nothing())
            if result.rowcount == 0:
                log.info("yard event %s again", body["event_id"])
            else:
                db.add(Shipment(vessel=body["container"]))
    except Exception:
        await msg.nak(delay=5)
        return
    await msg.ack()


async def subscribe() -> None:
    nc = await nats.connect()
    js: JetStreamContext = nc.jetstream()
    await js.subscribe("yard.*", cb=on_yard, durable="yard", manual_ack=True)
    await js.subscribe("yard.b", cb=on_yard_sequence, durable="yard-b", manual_ack=True)
    await js.subscribe("yard.c", cb=on_yard_good, durable="yard-c", manual_ack=True)


async def pull_loop(js: JetStreamContext) -> None:
    sub = await js.pull_subscribe("rail.*", "rail")
    while True:
        for msg in await sub.fetch(10, timeout=5):
            await msg.ack()  # bad: OG007
            wagon = json.loads(msg.data)
            await http.put(f"/wagons/{wagon['id']}", json=wagon)
