"""Kafka with three clients."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Callable

import httpx
import psycopg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import ConsumerRecord
from cachetools import TTLCache
from confluent_kafka import DeserializingConsumer, KafkaException, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from psycopg.rows import dict_row

logger = logging.getLogger("streams")
DSN = os.environ.get("DSN", "")


@dataclass
class Reading:
    meter: str
    reading_id: str
    value: float

    @classmethod
    def parse(cls, raw: bytes) -> "Reading":
        return cls(**json.loads(raw))


class AlarmService:
    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.recent: TTLCache[str, bool] = TTLCache(maxsize=10_000, ttl=300)

    def raise_alarm(self, reading: Reading) -> None:
        self.client.post("/alarms", json={"meter": reading.meter}).raise_for_status()

    def handle(self, reading: Reading) -> None:
        if reading.reading_id in self.recent:  # bad: OG003
            logger.info("reading %s was seen", reading.reading_id)
            return
        self.recent[reading.reading_id] = True
        self.raise_alarm(reading)


def consume_with_ttl(service: AlarmService) -> None:
    consumer = KafkaConsumer("readings", group_id="alarms", enable_auto_commit=False)
    for record in consumer:
        service.handle(Reading.parse(record.value))
        consumer.commit()


class MeterWorker:
    """Aiokafka consumer with its own producer."""

    def __init__(self, conn: psycopg.AsyncConnection) -> None:
        self.conn = conn
        self.consumer = AIOKafkaConsumer("readings", group_id="meters", enable_auto_commit=False)
        self.producer = AIOKafkaProducer()

    async def __aenter__(self) -> "MeterWorker":
        await self.consumer.start()
        await self.producer.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.consumer.stop()
        await self.producer.stop()

    async def run(self) -> None:
        async for record in self.consumer:
            await self.on_record(record)
            await self.consumer.commit()

    async def on_record(self, record: ConsumerRecord) -> None:
        reading = Reading.parse(record.value)
        await self.producer.send_and_wait("billing", json.dumps({"meter": reading.meter}).encode())  # bad: OG001


class LedgerWorker(MeterWorker):
    """Keeps readings and the keys in one transaction."""

    async def on_record(self, record: ConsumerRecord) -> None:  # good: OG001, OG004, OG006
        reading = Reading.parse(record.value)
        async with self.conn.transaction():
            cursor = await self.conn.execute(
                "INSERT INTO seen_readings (reading_id) VALUES (%s) ON CONFLICT (reading_id) DO NOTHING", (reading.reading_id,)
            )
            if cursor.rowcount == 0:
                logger.info("reading %s is known", reading.reading_id)
                return
            await self.conn.execute("UPDATE meters SET total = total + %s WHERE id = %s", (reading.value, reading.meter))


async def main() -> None:
    async with await psycopg.AsyncConnection.connect(DSN, row_factory=dict_row) as conn:
        async with MeterWorker(conn) as one, LedgerWorker(conn) as two:
            await asyncio.gather(one.run(), two.run())


async def totals_by_offset(conn: psycopg.AsyncConnection) -> None:
    consumer = AIOKafkaConsumer("readings", group_id="totals", enable_auto_commit=False)
    await consumer.start()
    try:
        async for msg in consumer:
            key = f"{msg.topic}-{msg.partition}-{msg.offset}"
            async with conn.transaction():
                done = await conn.execute("INSERT INTO processed_messages (id) VALUES (%s) ON CONFLICT DO NOTHING", (key,))  # bad: OG002
                if not done.rowcount:
                    logger.info("%s again", key)
                    continue
                await conn.execute("UPDATE totals SET value = value + 1")
            await consumer.commit()
    finally:
        await consumer.stop()


async def commit_first(client: httpx.AsyncClient) -> None:
    consumer = AIOKafkaConsumer("orders", group_id="orders", enable_auto_commit=False)
    await consumer.start()
    while True:
        batch = await consumer.getmany(timeout_ms=500)
        await consumer.commit()  # bad: OG007
        for messages in batch.values():
            for message in messages:
                order = json.loads(message.value)
                await client.put(f"/orders/{order['id']}", json=order)


async def commit_last(client: httpx.AsyncClient) -> None:  # good: OG001, OG007
    consumer = AIOKafkaConsumer("orders", group_id="orders", enable_auto_commit=False)
    await consumer.start()
    while True:
        batch = await consumer.getmany(timeout_ms=500)
        for messages in batch.values():
            for message in messages:
                order = json.loads(message.value)
                await client.put(f"/orders/{order['id']}", json=order)
        await consumer.commit()


class Runner:
    """A loop that takes a function: the classic wrapper."""

    def __init__(self, topics: list[str], handler: Callable[[dict[str, Any]], None]) -> None:
        self.consumer = DeserializingConsumer({"bootstrap.servers": "k", "group.id": "g", "enable.auto.commit": False})
        self.topics = topics
        self.handler = handler
        self.running = True
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *args: Any) -> None:
        self.running = False

    def loop(self) -> None:
        self.consumer.subscribe(self.topics)
        while self.running:
            message = self.consumer.poll(timeout=1.0)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            self.handler(message.value())
            self.consumer.commit(offsets=[TopicPartition(message.topic(), message.partition(), message.offset() + 1)])


def bill(order: dict[str, Any]) -> None:
    httpx.post("https://billing.example/invoices", json=order)  # bad: OG001


def archive(order: dict[str, Any]) -> None:  # good: OG001
    with psycopg.connect(DSN) as conn:
        conn.execute("INSERT INTO archive (id, body) VALUES (%(id)s, %(body)s) ON CONFLICT (id) DO UPDATE SET body = excluded.body", order)


def start() -> None:
    Runner(["orders"], bill).loop()
    Runner(["orders"], archive).loop()


def default_settings() -> None:
    consumer = DeserializingConsumer({"bootstrap.servers": "k", "group.id": "mails"})  # bad: OG007
    consumer.subscribe(["mails"])
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        with psycopg.connect(DSN) as conn:
            conn.execute("UPDATE mails SET state = 'queued' WHERE id = %s", (message.value()["id"],))


def lru_window(producer: KafkaProducer) -> None:
    seen: OrderedDict[str, None] = OrderedDict()
    consumer = KafkaConsumer("clicks", group_id="clicks", enable_auto_commit=False)
    for record in consumer:
        click = json.loads(record.value)
        if click["id"] in seen:
            logger.info("click %s again", click["id"])
            continue
        seen[click["id"]] = None
        producer.send("unique-clicks", record.value)  # bad: OG001
        consumer.commit()


def only_log() -> None:  # good: OG001
    for record in KafkaConsumer("audit", group_id="audit", enable_auto_commit=False):
        logger.info("%s", record.value)
