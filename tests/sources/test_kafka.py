"""Kafka on librdkafka's mock, with faults on command.

ONCEGATE_TEST_KAFKA=host:port runs what needs no faults on that broker.

Traps 16 to 25: contiguous commits, failures that pin, drained revocations, epochs, refused commits, polling
without demand, records that are no events, offsets that are gone.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer as KafkaClient
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from oncegate import Gate, NotApplied
from oncegate.errors import BadSource, ConfigError, SourceUnavailable
from oncegate.model.states import State
from oncegate.sources.consumer import Consumer
from oncegate.sources.contract import Delivery, Source
from oncegate.sources.kafka import Kafka
from oncegate.sources.options import consumption_of
from oncegate.store import EntryFilter
from oncegate.testing import SourceConformance
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.support.kafka_mock import (
    COORDINATOR_LOADING,
    HEARTBEAT,
    ILLEGAL_GENERATION,
    NOT_COORDINATOR,
    OFFSET_COMMIT,
    REBALANCE_IN_PROGRESS,
    TRANSPORT,
    UNKNOWN_MEMBER_ID,
    MockKafka,
)

GIVEN = os.environ.get("ONCEGATE_TEST_KAFKA")
SURFACE = "orders"
# A broker admits no session below six seconds; the mock waits for its end where a member has left.
QUICK = {"session.timeout.ms": 6_000 if GIVEN else 1_500, "heartbeat.interval.ms": 100}


class Topic:
    """A topic of one test, on the mock or on a given broker."""

    def __init__(self, kafka: MockKafka | None, partitions: int = 1) -> None:
        self.partitions = partitions
        self.bootstrap = GIVEN or (kafka.bootstrap if kafka else "")
        self.name, self.group = f"t-{uuid4().hex[:10]}", f"g-{uuid4().hex[:10]}"
        if GIVEN:
            admin = AdminClient({"bootstrap.servers": GIVEN})
            admin.create_topics([NewTopic(self.name, partitions, 1)])[self.name].result(30)
        elif kafka:
            kafka.create(self.name, partitions)
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def source(self, start: str | None = "earliest", **options: Any) -> Kafka:
        url = f"kafka://{self.bootstrap}/{self.name}"
        return Kafka(url, group=self.group, start=start, settings=QUICK, **options)

    def send(self, bodies: Sequence[bytes], key: str | None = None, partition: int = -1) -> None:
        for body in bodies:
            self._producer.produce(self.name, body, key, partition=partition)
        assert self._producer.flush(DEADLINE_SECONDS) == 0

    def committed(self, partition: int = 0) -> int:
        """The group's committed offset; -1001 where it has none."""
        client = KafkaClient({"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0})
        try:
            (found,) = client.committed([TopicPartition(self.name, partition)], DEADLINE_SECONDS)
            return int(found.offset)
        finally:
            client.close()


class Alone:
    """An `InFlight` that does what a test says when partitions leave."""

    def __init__(self) -> None:
        self.drained: list[float] = []
        self.on_drain: Callable[[Callable[[Delivery], bool]], Any] | None = None

    async def drain(self, which: Callable[[Delivery], bool], within_seconds: float) -> None:
        self.drained.append(within_seconds)
        if self.on_drain is not None:
            await self.on_drain(which)


@pytest.fixture
def topic(kafka: MockKafka) -> Topic:
    """A topic of one partition."""
    return Topic(kafka)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as opened:
        opened.engine.store.connect().close()
        yield opened


def play(scene: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scene

    asyncio.run(bounded())


@asynccontextmanager
async def opened(source: Kafka, in_flight: Alone | None = None) -> AsyncIterator[Kafka]:
    await source.open(in_flight or Alone())
    try:
        yield source
    finally:
        await source.close()


async def take(source: Kafka, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < count:
        found += await source.receive(count - len(found), 0.2)
    return found


async def committed(topic: Topic, source: Kafka, offset: int, only: bytes | None = None) -> None:
    """Waits for the group's offset, and acknowledges what comes again meanwhile.

    On a loaded machine a member may miss its heartbeats: it is thrown out, and its commit is refused.
    """
    while await asyncio.to_thread(topic.committed) != offset:
        again = await source.receive(2, 0.1)
        await source.ack([one for one in again if only is None or one.body == only])


async def until(condition: Callable[[], object]) -> None:
    """Asks in a thread, as a question to the brokers takes a while; the scene's deadline ends it."""
    while not await asyncio.to_thread(condition):
        pass


class TestKafka(SourceConformance):
    @pytest.fixture(autouse=True)
    def own_topic(self, topic: Topic, kafka: MockKafka) -> None:
        self.topic, self.kafka = topic, kafka

    def make_source(self) -> Source:
        return self.topic.source()

    def make_missing(self) -> Source:
        if not GIVEN:
            self.kafka.break_topic(self.topic.name, 3)
        name = "missing" if GIVEN else self.topic.name
        return Kafka(f"kafka://{self.topic.bootstrap}/{name}", group="g", start="earliest")

    async def send(self, bodies: Sequence[bytes], lane: str | None = None) -> None:
        await asyncio.to_thread(self.topic.send, bodies, lane)

    def test_a_missing_queue_is_refused_with_its_name(self) -> None:
        """The name is the topic's."""

        async def scene() -> None:
            source = self.make_missing()
            with pytest.raises(BadSource, match="create the topic"):
                await source.open(Alone())
            await source.close()

        self.run(scene)

    def test_what_is_acknowledged_does_not_come_again(self) -> None:
        """As far as everything before it is acknowledged: Kafka keeps one offset a partition."""

        async def scene() -> None:
            await self.send([b"1", b"2", b"3"])
            async with self.opened() as one:
                first, _, third = await one.next(3)
                await one.source.ack([first, third])
            async with self.opened() as one:
                again = await one.next(2)
                assert [delivery.body for delivery in again] == [b"2", b"3"]
                await one.source.ack(again)
                await one.nothing(0.3)

        self.run(scene)


@pytest.mark.slow
def test_a_record_that_fails_pins_the_commit_until_it_is_settled(gate: Gate, topic: Topic) -> None:
    """Later records run and are done; the offset stays at the failed one until it succeeds (16, 17)."""
    ran: list[int] = []
    may_end = asyncio.Event()

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        ran.append(event["order"])
        if event["order"] == 0 and not may_end.is_set():
            raise NotApplied("not yet")

    async def scene() -> None:
        for number in range(4):
            topic.send([json.dumps({"order": number}).encode()], key=f"k{number}")
        one = consumption_of(topic.source(), gate.engine.surface(SURFACE))
        async with Consumer(gate, one, stop_seconds=2.0):
            await until(lambda: {1, 2, 3} <= set(ran))
            await until(lambda: sum(e.state is State.COMMITTED for e in entries(gate)) == 3)
            assert topic.committed() in (-1001, 0)
            may_end.set()
            await until(lambda: topic.committed() == 4)

    play(scene())


def entries(gate: Gate) -> list[Any]:
    with gate.engine.store.look() as session:
        return session.entries(EntryFilter(), None, 100)


def test_a_record_that_is_no_event_is_kept_for_a_person_and_passed(gate: Gate, topic: Topic) -> None:
    """It neither blocks its partition nor is lost (24)."""
    ran: list[int] = []

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        ran.append(event["order"])

    async def scene() -> None:
        topic.send([b"\xff\x00 no event", b'{"order": 1}'], key="k")
        one = consumption_of(topic.source(), gate.engine.surface(SURFACE))
        async with Consumer(gate, one, stop_seconds=2.0):
            await until(lambda: topic.committed() == 2)
        assert ran == [1]
        assert sorted(e.state.name for e in entries(gate)) == ["COMMITTED", "QUARANTINED"]

    play(scene())


def test_a_revoked_partition_is_drained_and_committed_first(
    kafka: MockKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """What ends within the budget does not come again at its next owner; others are untouched (18).

    The mock refuses commits while a further rebalance begins, which brokers take; it is tried again then.
    """

    async def scene(topic: Topic) -> bool:
        for partition in (0, 1):
            topic.send([b"%d" % partition], partition=partition)
        in_flight, first, left = Alone(), topic.source(), list[int]()
        async with opened(first, in_flight):
            held = await take(first, 2)

            async def finish(which: Callable[[Delivery], bool]) -> None:
                await first.ack([one for one in held if which(one)])
                left.extend(one.handle.place[1] for one in held if which(one))

            in_flight.on_drain = finish
            async with opened(topic.source()) as second:
                while not left:
                    assert not await second.receive(1, 0.1)
                    assert not await first.receive(1, 0.1)
                (moved,) = left
                while await asyncio.to_thread(topic.committed, moved) != 1:
                    if "did not take a commit" in caplog.text:
                        return False
                assert topic.committed(1 - moved) == -1001
                topic.send([b"new"], partition=moved)
                (got,) = await take(second, 1)
                assert got.body == b"new"
                return True

    async def scenes() -> None:
        while not await scene(Topic(kafka, partitions=2)):
            caplog.clear()

    play(scenes())


def test_an_acknowledgement_of_an_old_epoch_changes_nothing(topic: Topic) -> None:
    """The partition has moved: a late one neither rewinds nor advances its next owner (19, 22)."""

    async def scene() -> None:
        topic.send([b"1", b"2"])
        async with opened(topic.source()) as first:
            old = await take(first, 2)
        first_again = topic.source()
        async with opened(first_again):
            again = await take(first_again, 2)
            await first_again.ack(old)
            await first_again.ack(again[:1])
            await committed(topic, first_again, 1, only=b"1")

    play(scene())


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS])
def test_a_refused_commit_stops_nothing(kafka: MockKafka, topic: Topic, error: int) -> None:
    """It is logged; the next one arrives (20)."""

    async def scene() -> None:
        topic.send([b"1"])
        async with opened(topic.source()) as source:
            kafka.fail(OFFSET_COMMIT, error)
            await source.ack(await take(source, 1))
            topic.send([b"2"])
            await committed(topic, source, 2)

    play(scene())


@pytest.mark.parametrize(
    "errors", [(REBALANCE_IN_PROGRESS,), (TRANSPORT,) * 3, (NOT_COORDINATOR,), (COORDINATOR_LOADING,)]
)
def test_a_commit_that_did_not_arrive_is_sent_again(
    kafka: MockKafka, topic: Topic, errors: tuple[int, ...]
) -> None:
    """Refused during a rebalance, or its connection was cut: no later record is needed for that (20)."""

    async def scene() -> None:
        topic.send([b"1"])
        async with opened(topic.source()) as source:
            kafka.fail(OFFSET_COMMIT, *errors)
            await source.ack(await take(source, 1))
            await committed(topic, source, 1)

    play(scene())


def test_a_member_that_is_thrown_out_before_its_commit_gets_the_record_again(
    kafka: MockKafka, topic: Topic
) -> None:
    """Its acknowledgement is of an old epoch: what comes again is a replay, whose commit counts (19)."""

    async def scene() -> None:
        topic.send([b"1"])
        async with opened(topic.source()) as source:
            held = await take(source, 1)
            kafka.fail(OFFSET_COMMIT, *(TRANSPORT,) * 3)
            kafka.fail(HEARTBEAT, UNKNOWN_MEMBER_ID)
            await source.ack(held)
            (again,) = await take(source, 1)
            assert again.body == b"1"
            await source.ack([again])
            await committed(topic, source, 1)

    play(scene())


def test_a_consumer_without_demand_stays_in_its_group(topic: Topic) -> None:
    """Handlers that run longer than max.poll.interval.ms cost no rebalance; nothing comes twice (23)."""

    async def scene() -> None:
        in_flight = Alone()
        source = Kafka(
            f"kafka://{topic.bootstrap}/{topic.name}", group=topic.group, start="earliest",
            settings={**QUICK, "session.timeout.ms": 1_500, "max.poll.interval.ms": 1_500},
        )  # fmt: skip
        topic.send([b"1", b"2", b"3"])
        async with opened(source, in_flight):
            (held,) = await take(source, 1)
            await asyncio.sleep(2.5)  # what is tested is that this time passes
            rest = await take(source, 2)
            assert [one.body for one in (held, *rest)] == [b"1", b"2", b"3"]
            assert in_flight.drained == []
            await source.ack([held, *rest])
            await until(lambda: topic.committed() == 3)

    play(scene())


def test_a_group_without_an_offset_asks_a_person_where_to_begin(topic: Topic) -> None:
    """Neither `earliest` nor `latest` is chosen in silence (25)."""

    async def scene() -> None:
        topic.send([b"1"])
        async with opened(topic.source(start=None)) as source:
            with pytest.raises(BadSource, match="start='earliest'"):
                await take(source, 1)

    play(scene())


def test_a_broker_that_cannot_be_reached_is_told_with_the_reason() -> None:
    """One line: what the client said of its connection is part of it."""

    async def scene() -> None:
        source = Kafka("kafka://127.0.0.1:9/t", group="g", start="earliest")
        with pytest.raises(SourceUnavailable, match=r"Kafka at 127.0.0.1:9/t: .*refused"):
            await source.open(Alone())
        await source.close()

    play(scene())


def test_brokers_that_are_away_are_told_and_found_again(kafka: MockKafka, topic: Topic) -> None:
    """The consumer hears SourceUnavailable, opens again and goes on where it was."""

    async def scene() -> None:
        topic.send([b"1"])
        async with opened(topic.source()) as source:
            await source.ack(await take(source, 1))
            kafka.take_down()
            with pytest.raises(SourceUnavailable):
                await take(source, 1)
            kafka.bring_up()
            await source.open(Alone())
            topic.send([b"2"])
            (got,) = await take(source, 1)
            assert got.body == b"2"

    play(scene())


@pytest.mark.slow
def test_keys_run_beside_each_other_and_each_in_order(gate: Gate, kafka: MockKafka) -> None:
    """Two members of a group, a rebalance in the middle: every effect once, every key in order."""
    topic, ran = Topic(kafka, partitions=4), dict[str, list[int]]()

    @gate.handler(SURFACE, key="{key}:{n}")
    async def book(event: Any, once: Any) -> None:
        await asyncio.sleep(0.002)
        ran.setdefault(event["key"], []).append(event["n"])

    def count() -> int:
        return sum(map(len, ran.values()))

    async def scene() -> None:
        for n in range(6):
            for key in range(10):
                topic.send([json.dumps({"key": f"k{key}", "n": n}).encode()], key=f"k{key}")
        surface = gate.engine.surface(SURFACE)
        async with Consumer(
            gate, consumption_of(topic.source(), surface, name="a", concurrency=4), stop_seconds=3.0
        ):
            await until(lambda: count() >= 10)
            async with Consumer(gate, consumption_of(topic.source(), surface, name="b"), stop_seconds=3.0):
                await until(lambda: sum(max(0, topic.committed(p)) for p in range(4)) == 60)
        assert ran == {f"k{key}": list(range(6)) for key in range(10)}

    play(scene())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"settings": {"enable.auto.commit": True}}, "not run"),
        ({"settings": {"auto.offset.reset": "latest"}}, "start="),
        ({"start": "middle"}, "earliest or latest"),
        ({"order": "none"}, "key or partition"),
        ({"settings": {"no.such.setting": 1}}, "No such configuration"),
    ],
)
def test_settings_that_acknowledge_early_are_refused(options: dict[str, Any], reason: str) -> None:
    """Each with what to write instead."""
    with pytest.raises(ConfigError, match=reason):
        asyncio.run(Kafka("kafka://127.0.0.1:9/t", group="g", **options).open(Alone()))
