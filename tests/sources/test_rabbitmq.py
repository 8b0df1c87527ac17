"""RabbitMQ on a real server: the conformance suite, and what only RabbitMQ does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import aio_pika
import pytest
from faststream import AckPolicy
from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue
from pamqp.commands import Basic

from oncegate import Gate, NotApplied
from oncegate.errors import BadSource, ConfigError, SourceUnavailable
from oncegate.integrations import faststream
from oncegate.sources.consumer import Consumer
from oncegate.sources.contract import Source
from oncegate.sources.options import consumption_of
from oncegate.sources.rabbitmq import RabbitMq
from oncegate.store import EntryFilter
from oncegate.testing import SourceConformance
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.support.servers import RabbitMq as RabbitMqServer

pytestmark = pytest.mark.slow


class NoOthers:
    async def drain(self, which: Any, within_seconds: float) -> None:
        return


class Queue:
    """A quorum queue of its own, with dead letters, on the shared server."""

    def __init__(self, url: str, kind: str = "quorum") -> None:
        self.url, self.name, self.kind = url, f"q-{uuid4().hex[:10]}", kind
        self.dead = f"{self.name}-dead"
        asyncio.run(self._make())

    async def _make(self) -> None:
        connection = await aio_pika.connect(self.url)
        channel = await connection.channel()
        for name in (self.name, self.dead):
            await channel.declare_queue(name, durable=True, arguments={"x-queue-type": self.kind})
        await connection.close()

    async def send(self, bodies: Sequence[bytes]) -> None:
        connection = await aio_pika.connect(self.url)
        channel = await connection.channel()
        for body in bodies:
            await channel.default_exchange.publish(aio_pika.Message(body), self.name)
        await connection.close()

    async def bodies(self, queue: str) -> list[bytes]:
        connection = await aio_pika.connect(self.url)
        found = await (await connection.channel()).get_queue(queue)
        bodies = []
        while (message := await found.get(no_ack=True, fail=False)) is not None:
            bodies.append(message.body)
        await connection.close()
        return bodies

    def source(self, **options: Any) -> RabbitMq:
        return RabbitMq(self.url, queue=self.name, **options)


@pytest.fixture
def queue(rabbitmq: RabbitMqServer) -> Queue:
    return Queue(rabbitmq.url)


class OfQueue(SourceConformance):
    kind = "quorum"

    @pytest.fixture(autouse=True)
    def own_queue(self, rabbitmq: RabbitMqServer) -> None:
        self.queue = Queue(rabbitmq.url, self.kind)

    def make_source(self) -> Source:
        return self.queue.source(dead_letters=self.queue.dead)

    def make_missing(self) -> Source:
        return RabbitMq(self.queue.url, queue="missing")

    async def send(self, bodies: Sequence[bytes], lane: str | None = None) -> None:
        await self.queue.send(bodies)

    async def dead_letters(self) -> list[bytes]:
        return await self.queue.bodies(self.queue.dead)


class TestQuorum(OfQueue):
    """A quorum queue, which counts deliveries."""


class TestClassic(OfQueue):
    """A classic queue."""

    kind = "classic"


def test_a_message_of_a_closed_channel_is_not_answered_on_another(queue: Queue) -> None:
    """Its tag means nothing there, and the answer would close that channel too (trap 29)."""

    async def scene() -> None:
        source = queue.source()
        await source.open(NoOthers())
        await queue.send([b"1"])
        (old,) = await source.receive(1, 30.0)
        await source._channel.close()
        with pytest.raises(SourceUnavailable):
            await source.receive(1, 0.1)
        await source.open(NoOthers())
        (again,) = await source.receive(1, 30.0)
        for answer in (source.ack([old]), source.give_back(old, 0.0), source.give_back(old, 1.0)):
            with pytest.raises(SourceUnavailable, match="channel that is closed"):
                await answer
        await source.ack([again])
        assert not source._channel.is_closed
        await source.close()

    asyncio.run(scene())
    assert asyncio.run(queue.bodies(queue.name)) == []


def test_a_channel_that_the_server_closes_is_opened_again(queue: Queue, tmp_path: Path) -> None:
    """A consumer without a channel would be idle without a word (trap 28); what it held is a replay."""
    ran: list[int] = []
    source = queue.source()
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as gate:

        @gate.handler("orders", key="{order}", redelivery_horizon="14d")
        async def book(event: Any, once: Any) -> None:
            ran.append(event["order"])
            if event["order"] == 1:  # an unknown tag: the server closes the channel
                await source._underlay.basic_ack(delivery_tag=999_999)

        async def scene() -> None:
            one = consumption_of(source, gate.engine.surface("orders"))
            async with asyncio.timeout(DEADLINE_SECONDS), Consumer(gate, one) as consumer:
                await queue.send([b'{"order": 1}'])
                while consumer.status().last_error is None:  # noqa: ASYNC110  the consumer changes it
                    await asyncio.sleep(0.01)
                await queue.send([b'{"order": 2}'])
                while len(ran) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        asyncio.run(scene())
    assert ran == [1, 2]


def test_a_second_acknowledgement_is_not_sent(queue: Queue) -> None:
    """It would close the channel, and everything unanswered would come again (trap 30)."""

    async def scene() -> None:
        source = queue.source()
        await source.open(NoOthers())
        await queue.send([b"1", b"2"])
        found: list[Any] = []
        while len(found) < 2:
            found += await source.receive(2, 30.0)
        await source.ack(found[:1])
        await source.ack(found[:1])
        await source.ack(found[1:])
        assert await source.lag() == 0
        await source.close()

    asyncio.run(scene())
    assert asyncio.run(queue.bodies(queue.name)) == []


def test_a_copy_that_reaches_no_queue_is_not_taken_for_delivered(queue: Queue) -> None:
    """An unroutable message looks confirmed unless it is asked for (trap 32); the original stays."""

    async def scene() -> None:
        source = queue.source(dead_letters=queue.dead)
        await source.open(NoOthers())
        await queue.send([b"bad"])
        (bad,) = await source.receive(1, 30.0)
        connection = await aio_pika.connect(queue.url)
        await (await connection.channel()).queue_delete(queue.dead)
        await connection.close()
        with pytest.raises(SourceUnavailable):
            await source.bury(bad, "not an event")
        await source.close()

    asyncio.run(scene())
    assert asyncio.run(queue.bodies(queue.name)) == [b"bad"]


def test_no_more_messages_are_unanswered_than_were_asked_for(queue: Queue) -> None:
    """The server sends no more than the largest receive."""

    async def scene() -> None:
        source = queue.source()
        await source.open(NoOthers())
        await queue.send([b"x"] * 10)
        found: list[Any] = []
        while len(found) < 3:
            found += await source.receive(3 - len(found), 30.0)
        assert await source.lag() == 7
        await source.ack(found)
        await source.close()

    asyncio.run(scene())


def test_what_waited_keeps_its_count_and_its_headers(queue: Queue) -> None:
    """The copy in the delay queue is the same message."""

    async def scene() -> None:
        source = queue.source()
        await source.open(NoOthers())
        connection = await aio_pika.connect(queue.url)
        message = aio_pika.Message(b"1", headers={"traceparent": "t"}, correlation_id="c", message_id="m")
        await (await connection.channel()).default_exchange.publish(message, queue.name)
        await connection.close()
        (first,) = await source.receive(1, 30.0)
        await source.give_back(first, 0.5)
        (second,) = await source.receive(1, 30.0)
        assert (second.message_id, second.times_delivered) == ("m", 2)
        assert second.headers["traceparent"] == "t"
        assert second.headers["x-correlation-id"] == "c"
        await source.ack([second])
        await source.close()

    asyncio.run(scene())


def test_a_held_message_of_faststream_outlives_the_delivery_limit(
    rabbitmq: RabbitMqServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quorum queue drops what is returned too often; a confirmed copy counts from the beginning."""
    monkeypatch.setattr(faststream, "HELD_MAX_SECONDS", 0.0)
    ran: list[dict[str, str]] = []
    broker, audit = RabbitBroker(rabbitmq.url), Queue(rabbitmq.url)
    limited = RabbitQueue(
        f"q-{uuid4().hex[:10]}", durable=True, queue_type=QueueType.QUORUM,
        arguments={"x-delivery-limit": 1},
    )  # fmt: skip
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as gate:

        @gate.handler("orders", key="{order}", retry_base="10ms", retry_cap="20ms")
        async def book(event: Any, once: Any) -> None:
            ran.append(event)
            if len(ran) < 5:
                raise NotApplied("not yet")

        subscriber = broker.subscriber(limited, ack_policy=AckPolicy.MANUAL)
        faststream.subscribe(subscriber, gate, "orders")

        async def scene() -> None:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await broker.start()
                await broker.publish(
                    {"order": 1}, queue=limited, message_id="m1", headers={"CC": [audit.name]}
                )
                while len(ran) < 5:  # noqa: ASYNC110  the subscriber changes it
                    await asyncio.sleep(0.01)
                await broker.stop()

        asyncio.run(scene())
        assert len(asyncio.run(audit.bodies(audit.name))) == 1  # the copies went to their own queue only
        with gate.engine.store.look() as session:
            assert [one.state.label for one in session.entries(EntryFilter(), None, 9)] == ["committed"]


@pytest.mark.parametrize("closes_channel", [False, True])
def test_a_held_message_of_faststream_is_returned_where_its_copy_is_refused(
    rabbitmq: RabbitMqServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    closes_channel: bool,
) -> None:
    """Its queue is full of another message: the original comes again, by the channel that it came by."""
    monkeypatch.setattr(faststream, "HELD_MAX_SECONDS", 0.0)
    if closes_channel:  # for the name of another user
        monkeypatch.setattr(faststream, "_copied", lambda message: Basic.Properties(user_id="other"))
    ran: list[int] = []
    broker = RabbitBroker(rabbitmq.url)
    channels: set[Any] = set()
    full = RabbitQueue(
        f"q-{uuid4().hex[:10]}", durable=True,
        arguments={"x-max-length": 1, "x-overflow": "reject-publish"},
    )  # fmt: skip
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as gate:

        @gate.handler("orders", key="{order}", retry_base="10ms", retry_cap="20ms")
        async def book(event: Any, once: Any) -> None:
            ran.append(event["order"])
            if len(ran) == 1:
                await broker.publish({"order": 2}, queue=full)
                raise NotApplied("not yet")

        consume = faststream._consume

        async def look(runner: Any, message: Any, *more: Any) -> None:
            channels.add(message.raw_message.channel)
            await consume(runner, message, *more)

        monkeypatch.setattr(faststream, "_consume", look)
        subscriber = broker.subscriber(full, ack_policy=AckPolicy.MANUAL, channel=Channel(prefetch_count=1))
        faststream.subscribe(subscriber, gate, "orders")

        async def scene() -> None:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await broker.start()
                await broker.publish({"order": 1}, queue=full)
                while len(ran) < 3:  # noqa: ASYNC110  the subscriber changes it
                    await asyncio.sleep(0.01)
                await broker.stop()

        asyncio.run(scene())
    assert ran == [1, 1, 2]
    assert ("ChannelPreconditionFailed" in caplog.text, "DeliveryError" in caplog.text) == (
        closes_channel,
        not closes_channel,
    )
    assert len(channels) == 1


def test_a_copy_of_faststream_names_no_user_and_no_other_queue() -> None:
    """The server closes the channel of one who names another user."""
    headers: dict[str, Any] = {"a": "b", "CC": ["x"], "BCC": ["x"], "x-delivery-count": 3}
    copied = faststream._copied(aio_pika.Message(b"", headers=headers, user_id="producer"))
    assert (copied.headers, copied.user_id, copied.delivery_mode) == ({"a": "b"}, None, 2)


def test_acknowledging_early_is_refused(queue: Queue) -> None:
    """Before anything is connected."""
    with pytest.raises(ConfigError, match="no_ack"):
        queue.source(no_ack=True)


def test_wrong_credentials_and_an_absent_server_are_told_apart(queue: Queue) -> None:
    """A person sets the first right; the second is tried again."""

    async def scene() -> None:
        wrong = RabbitMq(queue.url.replace("guest:guest", "guest:secret"), queue=queue.name)
        with pytest.raises(BadSource, match="check the user") as told:
            await wrong.open(NoOthers())
        assert "secret" not in str(told.value)
        await wrong.close()
        away = RabbitMq("amqp://127.0.0.1:1/", queue="q")
        with pytest.raises(SourceUnavailable):
            await away.open(NoOthers())
        await away.close()

    asyncio.run(scene())
