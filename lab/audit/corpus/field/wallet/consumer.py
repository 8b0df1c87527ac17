"""Consumers of the wallet on NATS JetStream and Kafka."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from functools import partial

import nats
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeout
from sqlalchemy.ext.asyncio import AsyncEngine

from .ports import Cards, Fx, PayoutPort, Sms
from .repo import UnitOfWork

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Deps:
    engine: AsyncEngine
    sms: Sms
    payouts: PayoutPort
    cards: Cards
    fx: Fx


async def on_topup(msg: Msg, deps: Deps) -> None:  # good: OG001, OG004, OG006, OG007
    event = json.loads(msg.data)
    async with UnitOfWork(deps.engine) as uow:
        if not await uow.events.insert_if_new(event["topup_id"]):
            logger.info("top-up %s is booked", event["topup_id"])
            await msg.ack()
            return
        await uow.accounts.credit(event["account"], event["amount"])
    await msg.ack()


async def on_topup_bare(msg: Msg, deps: Deps) -> None:
    event = json.loads(msg.data)
    async with UnitOfWork(deps.engine) as uow:
        await uow.accounts.credit_bare(event["account"], event["amount"])  # bad: OG001
    await msg.ack()


async def on_limit(msg: Msg, deps: Deps) -> None:  # good: OG001
    event = json.loads(msg.data)
    async with UnitOfWork(deps.engine) as uow:
        await uow.accounts.set_limit(event["account"], event["limit"])
    await msg.ack()


async def on_payout(msg: Msg, deps: Deps) -> None:
    event = json.loads(msg.data)
    rate = await deps.fx.rate("EURUSD")
    await deps.payouts.pay(event["account"], int(event["amount"] * rate), event["payout_id"])  # bad: OG001
    await msg.ack()


async def on_alert(msg: Msg, deps: Deps) -> None:
    event = json.loads(msg.data)
    await deps.sms.send(event["phone"], event["text"])  # bad: OG001
    await msg.ack()


async def on_charge(msg: Msg, deps: Deps) -> None:  # good: OG001, OG009, OG012
    event = json.loads(msg.data)
    await asyncio.to_thread(deps.cards.charge, event["customer"], event["amount"], key=f"charge/{event['charge_id']}")
    await msg.ack()


async def on_charge_checked(msg: Msg, deps: Deps) -> None:
    event = json.loads(msg.data)
    async with UnitOfWork(deps.engine) as uow:
        if await uow.events.is_processed(event["charge_id"]):  # bad: OG005
            logger.info("charge %s is done", event["charge_id"])
            await msg.ack()
            return
    deps.cards.charge_unkeyed(event["customer"], event["amount"])
    async with UnitOfWork(deps.engine) as uow:
        await uow.events.mark_processed(event["charge_id"])
    await msg.ack()


async def on_quote(msg: Msg, deps: Deps) -> None:  # good: OG001
    event = json.loads(msg.data)
    quote = await deps.fx.quote(event["pair"], event["amount"])
    logger.info("%s", quote)
    await msg.ack()


ROUTES = {
    "wallet.topup": on_topup,
    "wallet.topup.v0": on_topup_bare,
    "wallet.limit": on_limit,
    "wallet.payout": on_payout,
    "wallet.alert": on_alert,
    "wallet.charge": on_charge,
    "wallet.charge.v0": on_charge_checked,
    "wallet.quote": on_quote,
}


async def main(deps: Deps) -> None:
    nc = await nats.connect("nats://broker")
    js = nc.jetstream()
    for subject, function in ROUTES.items():
        await js.subscribe(subject, durable=subject.replace(".", "-"), cb=partial(function, deps=deps), manual_ack=True)


async def pull_refunds(js, deps: Deps) -> None:
    sub = await js.pull_subscribe("wallet.refund", durable="refund")
    while True:
        try:
            msgs = await sub.fetch(batch=20, timeout=1)
        except NatsTimeout:
            continue
        for msg in msgs:
            refund = json.loads(msg.data)
            async with UnitOfWork(deps.engine) as uow:
                fresh = await uow.events.insert_if_new(str(msg.metadata.sequence.stream))  # bad: OG002
                if not fresh:
                    logger.info("again")
                    await msg.ack()
                    continue
                await uow.accounts.credit(refund["account"], refund["amount"])
            await msg.ack()


async def statements(deps: Deps) -> None:
    consumer = AIOKafkaConsumer("statements", bootstrap_servers="k:9092", group_id="wallet", enable_auto_commit=False)
    await consumer.start()
    try:
        while True:
            record: ConsumerRecord = await consumer.getone()
            tp = TopicPartition(record.topic, record.partition)
            await consumer.commit({tp: record.offset + 1})  # bad: OG007
            event = json.loads(record.value)
            async with UnitOfWork(deps.engine) as uow:
                await uow.accounts.set_limit(event["account"], event["limit"])
    finally:
        await consumer.stop()
