"""Queues on real servers for the bench of sources: how to fill one, and its bare client.

A bare client receives and acknowledges, as its documentation shows it, and does nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import uuid4

from oncegate import sources
from oncegate.sources.contract import Source
from tests.support.kafka_mock import MockKafka
from tests.support.servers import MiniStack, Nats, RabbitMq, Server, Valkey, running

BATCH: Final = 64
KEYS: Final[dict[str, Any]] = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}

Seen = Callable[[int], object]  # called with each number of messages that were acknowledged


class BenchQueue(NamedTuple):
    """One empty queue: how to fill it, the bare client, and the adapter."""

    send: Callable[[list[bytes]], Awaitable[None]]
    bare: Callable[[int, Seen], Coroutine[Any, Any, None]]
    source: Callable[[], Source]


def of_nats(url: str) -> BenchQueue:
    """A stream with a pull consumer."""
    import nats

    name = f"S{uuid4().hex[:8]}"

    async def send(bodies: list[bytes]) -> None:
        client = await nats.connect(url)
        stream = client.jetstream()
        await stream.add_stream(name=name, subjects=[f"{name}.>"])
        for first in range(0, len(bodies), BATCH):
            await asyncio.gather(
                *(stream.publish(f"{name}.x", one) for one in bodies[first : first + BATCH])
            )
        await client.close()

    async def bare(count: int, seen: Seen) -> None:
        client = await nats.connect(url)
        stream = client.jetstream()
        await stream.add_stream(name=name, subjects=[f"{name}.>"])
        pulling = await stream.pull_subscribe(f"{name}.>", durable="worker")
        while count > 0:
            for message in await pulling.fetch(min(BATCH, count), 5):
                await message.ack()
                count -= 1
                seen(1)
        await client.flush()
        await client.close()

    return BenchQueue(send, bare, lambda: sources.Nats(url, stream=name, durable="worker"))


def of_rabbitmq(url: str) -> BenchQueue:
    """A durable quorum queue."""
    import aio_pika

    name = f"q-{uuid4().hex[:8]}"

    async def opened() -> tuple[Any, Any, Any]:
        connection = await aio_pika.connect(url)
        channel = await connection.channel()
        queue = await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})
        return connection, channel, queue

    async def send(bodies: list[bytes]) -> None:
        connection, channel, _ = await opened()
        publish = channel.default_exchange.publish
        for first in range(0, len(bodies), BATCH):
            part = bodies[first : first + BATCH]
            await asyncio.gather(*(publish(aio_pika.Message(one, delivery_mode=2), name) for one in part))
        await connection.close()

    async def bare(count: int, seen: Seen) -> None:
        connection, channel, queue = await opened()
        await channel.set_qos(prefetch_count=BATCH)
        async with queue.iterator() as messages:
            async for message in messages:
                await message.ack()
                seen(1)
                count -= 1
                if count == 0:
                    break
        await connection.close()

    return BenchQueue(send, bare, lambda: sources.RabbitMq(url, queue=name))


def of_valkey(url: str) -> BenchQueue:
    """A stream with a group."""
    from redis.asyncio import Redis

    name = f"s-{uuid4().hex[:8]}"

    async def send(bodies: list[bytes]) -> None:
        async with Redis.from_url(url) as redis, redis.pipeline(transaction=False) as together:
            if not await redis.exists(name):
                await redis.xgroup_create(name, "workers", id="0", mkstream=True)
            for body in bodies:
                together.xadd(name, {"body": body})
            await together.execute()

    async def bare(count: int, seen: Seen) -> None:
        async with Redis.from_url(url, protocol=2) as redis:
            if not await redis.exists(name):
                await redis.xgroup_create(name, "workers", id="0", mkstream=True)
            while count > 0:
                found: Any = await redis.xreadgroup("workers", "one", {name: ">"}, count=BATCH, block=1000)
                for _, entries in found:
                    await redis.xack(name, "workers", *(one for one, _ in entries))
                    count -= len(entries)
                    seen(len(entries))

    return BenchQueue(send, bare, lambda: sources.RedisStream(url, stream=name, group="workers"))


def of_ministack(url: str) -> BenchQueue:
    """A standard queue."""
    import boto3

    client = boto3.client("sqs", endpoint_url=url, region_name="us-east-1", **KEYS)
    queue = client.create_queue(QueueName=f"q-{uuid4().hex[:8]}")["QueueUrl"]

    async def send(bodies: list[bytes]) -> None:
        for first in range(0, len(bodies), 10):
            entries = [
                {"Id": str(place), "MessageBody": one.decode()}
                for place, one in enumerate(bodies[first : first + 10])
            ]
            await asyncio.to_thread(client.send_message_batch, QueueUrl=queue, Entries=entries)

    def take(count: int, seen: Seen) -> None:
        while count > 0:
            found = client.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=5)
            entries = [
                {"Id": str(place), "ReceiptHandle": one["ReceiptHandle"]}
                for place, one in enumerate(found.get("Messages", ()))
            ]
            if entries:
                client.delete_message_batch(QueueUrl=queue, Entries=entries)
            count -= len(entries)
            seen(len(entries))

    async def bare(count: int, seen: Seen) -> None:
        await asyncio.to_thread(take, count, seen)

    return BenchQueue(send, bare, lambda: sources.Sqs(queue, endpoint=url, region="us-east-1", **KEYS))


def of_kafka(kafka: MockKafka) -> BenchQueue:
    """A topic of four partitions."""
    from confluent_kafka import Consumer, Producer

    name, servers = f"t-{uuid4().hex[:8]}", {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
    kafka.create(name, 4)
    producer = Producer(servers)

    async def send(bodies: list[bytes]) -> None:
        for number, body in enumerate(bodies):
            producer.produce(name, body, str(number))
        await asyncio.to_thread(producer.flush)

    def take(count: int, seen: Seen) -> None:
        own = {
            "group.id": f"g-{uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer({**servers, **own})
        consumer.subscribe([name])
        while count > 0:
            found = consumer.consume(BATCH, 0.1)
            if found:
                consumer.commit(asynchronous=True)
            count -= len(found)
            seen(len(found))
        consumer.close()

    async def bare(count: int, seen: Seen) -> None:
        await asyncio.to_thread(take, count, seen)

    url = f"kafka://{kafka.bootstrap}/{name}"
    return BenchQueue(
        send, bare, lambda: sources.Kafka(url, group=f"g-{uuid4().hex[:8]}", start="earliest")
    )


KINDS: Final[dict[str, tuple[type[Server], Callable[[str], BenchQueue]]]] = {
    "nats": (Nats, of_nats),
    "rabbitmq": (RabbitMq, of_rabbitmq),
    "redis": (Valkey, of_valkey),
    "sqs": (MiniStack, of_ministack),
}


@contextmanager
def making(kind: str) -> Iterator[Callable[[], BenchQueue] | None]:
    """Makes empty queues on one server of a kind; None where the server is not installed."""
    if kind == "kafka":
        with MockKafka() as kafka:
            yield lambda: of_kafka(kafka)
        return
    server, make = KINDS[kind]
    if not server.is_present():
        yield None
        return
    with running(server) as one:
        yield lambda: make(one.url)
