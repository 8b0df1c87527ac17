"""39 slots for 39 containers through real queues, while workers die and brokers restart.

The short storm runs through NATS with one worker killed. The long ones are soaks: every queue, five kills,
a restart of the broker where it keeps its data.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oncegate import sources
from oncegate.errors import BadSource, SourceUnavailable
from oncegate.sources.contract import Source
from oncegate.testing.waiting import wait_until
from tests.sources import test_kafka, test_nats, test_rabbitmq, test_redis_stream, test_sqs
from tests.support.kafka_mock import MockKafka
from tests.support.queue_storm import Storm
from tests.support.servers import MiniStack, Nats, RabbitMq, Server, Valkey, running

pytestmark = pytest.mark.slow

SEED = 7


class Broker(NamedTuple):
    """One queue on a server: how to send, how a worker names it, and how much is left."""

    send: Callable[[Sequence[bytes]], None]
    adapter: str
    options: dict[str, Any]
    left: Callable[[], int]


class NoOthers:
    async def drain(self, which: Any, within_seconds: float) -> None:
        return


def of_nats(url: str) -> Broker:
    stream = test_nats.Stream(url)
    options = {"url": url, "stream": stream.name, "durable": "worker", "ack_wait": 3.0}

    async def left() -> int:
        import nats

        client = await nats.connect(url)
        found = await client.jetstream().consumer_info(stream.name, "worker")
        await client.close()
        return int(found.num_pending or 0) + int(found.num_ack_pending or 0)

    return Broker(
        lambda bodies: asyncio.run(stream.send(bodies)), "Nats", options, lambda: asyncio.run(left())
    )


def of_valkey(url: str) -> Broker:
    stream = test_redis_stream.Stream(url)
    options = {"url": url, "stream": stream.name, "group": "workers", "lease": 3.0}

    def left() -> int:
        async def ask() -> int:
            (group,) = await stream.do("XINFO", "GROUPS", stream.name)
            found = test_redis_stream.dict_of(group)
            return int(found[b"pending"]) + int(found[b"lag"] or 0)

        return asyncio.run(ask())

    return Broker(lambda bodies: asyncio.run(stream.send(bodies)), "RedisStream", options, left)


def of_rabbitmq(url: str) -> Broker:
    queue = test_rabbitmq.Queue(url)
    options = {"url": url, "queue": queue.name}

    def left() -> int:
        async def ask(source: Source) -> int:
            try:
                await source.open(NoOthers())
                return await source.lag() or 0
            except BadSource:  # a delay that was never needed
                return 0
            except SourceUnavailable:
                return 1
            finally:
                await source.close()

        names = [queue.name, *(f"{queue.name}.oncegate.delay.{seconds}s" for seconds in (1, 5, 30))]
        return sum(asyncio.run(ask(sources.RabbitMq(url, queue=name))) for name in names)

    return Broker(lambda bodies: asyncio.run(queue.send(bodies)), "RabbitMq", options, left)


def of_ministack(url: str) -> Broker:
    queue = test_sqs.Queue(url)
    options = {
        "url": queue.url, "endpoint": url, "region": "us-east-1", "visibility": 3, **test_sqs.KEYS,
    }  # fmt: skip

    def left() -> int:
        found = queue.client.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["All"])["Attributes"]
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        return sum(int(found[name]) for name in names)

    return Broker(queue.send, "Sqs", options, left)


def of_kafka(kafka: MockKafka) -> Broker:
    topic = test_kafka.Topic(kafka, partitions=4)
    url = f"kafka://{topic.bootstrap}/{topic.name}"
    options = {"url": url, "group": topic.group, "start": "earliest", "settings": test_kafka.QUICK}
    sent: list[int] = []

    def send(bodies: Sequence[bytes]) -> None:
        for number, body in enumerate(bodies):
            topic.send([body], partition=number % topic.partitions)
        sent.append(len(bodies))

    def left() -> int:
        done = sum(max(0, topic.committed(partition)) for partition in range(topic.partitions))
        return sum(sent) - done

    return Broker(send, "Kafka", options, left)


def storm_through(broker: Broker, folder: Path, *, copies: int, kills: int, expires: bool = False) -> Storm:
    rng = random.Random(SEED)
    storm = Storm(folder, broker.adapter, broker.options, expires=expires)
    broker.send(storm.bodies(copies, rng))
    try:
        storm.run(lambda: broker.left() == 0, kills, rng)
    finally:
        codes = storm.stop()
    first, last = codes
    assert first == 0, storm.log()[-3000:]
    assert last in (0, -signal.SIGTERM), storm.log()[-3000:]  # the newest may not have started yet
    storm.check()
    return storm


def test_each_container_gets_one_slot_though_a_worker_is_killed(tmp_path: Path, nats: Nats) -> None:
    """Every event is sent twice, and poison is in between."""
    storm_through(of_nats(nats.url), tmp_path, copies=2, kills=1)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("server", "broker"),
    [(Nats, of_nats), (Valkey, of_valkey), (RabbitMq, of_rabbitmq), (MiniStack, of_ministack)],
)
def test_storm_through_every_queue(
    tmp_path: Path, server: type[Server], broker: Callable[[str], Broker]
) -> None:
    """Five workers are killed while the queue is drained."""
    with running(server) as one:
        storm_through(broker(one.url), tmp_path, copies=5, kills=5)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("server", "broker", "lease"),
    [(Nats, of_nats, "ack_wait"), (Valkey, of_valkey, "lease"), (MiniStack, of_ministack, "visibility")],
)
def test_storm_whose_messages_expire_while_their_handlers_run(
    tmp_path: Path, server: type[Server], broker: Callable[[str], Broker], lease: str
) -> None:
    """The broker delivers them to the other worker meanwhile, which finds the key busy."""
    with running(server) as one:
        found = broker(one.url)
        storm_through(
            found._replace(options={**found.options, lease: 1}), tmp_path, copies=2, kills=1, expires=True
        )


@pytest.mark.soak
def test_storm_through_a_mock_of_kafka(tmp_path: Path, kafka: MockKafka) -> None:
    """Five workers are killed, so that partitions move from one to the other."""
    storm_through(of_kafka(kafka), tmp_path, copies=5, kills=5)


@pytest.mark.soak
def test_storm_through_a_mock_of_kafka_that_goes_down(tmp_path: Path, kafka: MockKafka) -> None:
    """Its connections end halfway, and its listener is away until the workers have noticed."""
    rng, broker = random.Random(SEED), of_kafka(kafka)
    storm = Storm(tmp_path, broker.adapter, broker.options)
    broker.send(storm.bodies(3, rng))
    storm.start()
    storm.start()
    try:
        wait_until(lambda: storm.slots() >= 1, what=f"a first slot; {storm.log()[-1500:]}")
        kafka.take_down()
        wait_until(lambda: "cannot be reached" in storm.log(), what="a worker that has noticed")
        kafka.bring_up()
        storm.run(lambda: broker.left() == 0, kills=1, rng=rng, workers=0)
    finally:
        storm.stop()
    storm.check()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("server", "broker"), [(Nats, of_nats), (Valkey, of_valkey), (RabbitMq, of_rabbitmq)]
)
def test_storm_through_a_broker_that_is_killed(
    tmp_path: Path, server: type[Server], broker: Callable[[str], Broker]
) -> None:
    """The broker is killed with -9 halfway and started again with its data."""
    rng = random.Random(SEED)
    with running(server) as one:
        found = broker(one.url)
        storm = Storm(tmp_path, found.adapter, found.options)
        bodies = storm.bodies(3, rng)
        found.send(bodies[: len(bodies) // 2])
        storm.start()
        storm.start()
        one.kill()
        one.start()
        found.send(bodies[len(bodies) // 2 :])
        try:
            storm.run(lambda: found.left() == 0, kills=2, rng=rng, workers=0)
        finally:
            storm.stop()
        storm.check()
