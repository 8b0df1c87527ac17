"""NATS JetStream on a real server: the conformance suite, and what only JetStream does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from oncegate.errors import BadSource, ConfigError, SourceUnavailable
from oncegate.sources.contract import Source
from oncegate.sources.nats import Nats
from oncegate.testing import SourceConformance
from tests.support.servers import Nats as NatsServer


class Stream:
    """A stream of its own on the shared server."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.url, self.name = url, f"S{uuid4().hex[:10]}"
        asyncio.run(self._make(settings))

    async def _make(self, settings: dict[str, Any]) -> None:
        client = await nats.connect(self.url)
        await client.jetstream().add_stream(name=self.name, subjects=[f"{self.name}.>"], **settings)
        await client.close()

    async def send(self, bodies: Sequence[bytes]) -> None:
        client = await nats.connect(self.url)
        for body in bodies:
            await client.jetstream().publish(f"{self.name}.x", body)
        await client.close()

    def consumer(self, **settings: Any) -> None:
        async def make() -> None:
            client = await nats.connect(self.url)
            await client.jetstream().add_consumer(
                self.name, ConsumerConfig(**{"durable_name": "worker", **settings})
            )
            await client.close()

        asyncio.run(make())

    def source(self, **options: Any) -> Nats:
        return Nats(self.url, stream=self.name, durable="worker", **options)


class NoOthers:
    async def drain(self, which: Any, within_seconds: float) -> None:
        return


@pytest.fixture
def stream(nats: NatsServer) -> Stream:
    return Stream(nats.url)


class TestNats(SourceConformance):
    @pytest.fixture(autouse=True)
    def own_stream(self, nats: NatsServer) -> None:
        self.stream = Stream(nats.url)

    def make_source(self) -> Source:
        return self.stream.source(ack_wait=1.0)

    def make_missing(self) -> Source:
        return Nats(self.stream.url, stream="missing", durable="worker")

    async def send(self, bodies: Sequence[bytes], lane: str | None = None) -> None:
        await self.stream.send(bodies)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ack_policy": AckPolicy.EXPLICIT, "max_deliver": 5}, "max_deliver=5"),
        ({"ack_policy": AckPolicy.NONE, "deliver_subject": "x"}, "ack_policy is none"),
        ({"ack_policy": AckPolicy.ALL, "deliver_subject": "x"}, "ack_policy is all"),
        ({"ack_policy": AckPolicy.EXPLICIT, "deliver_subject": "x"}, "push consumer"),
        ({"ack_policy": AckPolicy.EXPLICIT, "headers_only": True}, "headers_only"),
    ],
)
def test_a_consumer_that_would_lose_messages_is_refused(
    stream: Stream, settings: dict[str, Any], why: str
) -> None:
    """After max_deliver a message stays in the stream and no consumer gets it (trap 33)."""
    stream.consumer(**settings)

    async def scene() -> None:
        source = stream.source()
        try:
            with pytest.raises(BadSource, match=why):
                await source.open(NoOthers())
        finally:
            await source.close()

    asyncio.run(scene())


def test_a_message_is_not_held_up_by_the_batch_it_is_in(stream: Stream) -> None:
    """A receive of sixteen answers with the first message, and the open request brings the next."""

    async def scene() -> None:
        source = stream.source()
        await source.open(NoOthers())
        loop = asyncio.get_running_loop()
        found: list[Any] = []
        for number in range(3):
            waiting = asyncio.create_task(source.receive(16 - number, 30.0))
            await asyncio.sleep(0.02)
            began = loop.time()
            await stream.send([b"x"])
            found += await waiting
            assert loop.time() - began < 20.0  # the wait is 30
        await source.ack(found)
        assert len(found) == 3
        await source.close()

    asyncio.run(scene())


def test_what_came_and_was_not_received_is_given_back_at_the_end(stream: Stream) -> None:
    """The next consumer need not wait for the end of ack_wait."""

    async def scene() -> None:
        await stream.send([b"1", b"2", b"3"])
        source = stream.source(ack_wait=300.0)
        await source.open(NoOthers())
        asked = asyncio.create_task(source.receive(3, 5.0))
        await asyncio.sleep(0.05)
        asked.cancel()
        await source.close()
        other = stream.source()
        await other.open(NoOthers())
        found: list[Any] = []
        while len(found) < (3 if asked.cancelled() else 0):
            found += await other.receive(3, 5.0)
        await other.close()

    asyncio.run(scene())


def test_a_server_that_is_away_is_told_as_unavailable(stream: Stream) -> None:
    """It is tried again, and the message has no password."""

    async def scene() -> None:
        source = Nats("nats://user:secret@127.0.0.1:1", stream="s", durable="d")
        with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:1") as told:
            await source.open(NoOthers())
        assert "secret" not in str(told.value)
        await source.close()

    asyncio.run(scene())


@pytest.mark.parametrize("options", [{"stream": "a b", "durable": "d"}, {"stream": "s", "durable": ""}])
def test_names_that_nats_would_refuse_are_refused_at_once(options: dict[str, Any]) -> None:
    """Before anything is connected."""
    with pytest.raises(ConfigError, match="cannot be a name"):
        Nats("nats://127.0.0.1:1", **options)


def test_a_durable_with_another_filter_is_refused(stream: Stream) -> None:
    """It would pass over messages without a word."""
    stream.consumer(filter_subject=f"{stream.name}.other", ack_policy=AckPolicy.EXPLICIT)

    async def scene() -> None:
        source = stream.source()
        with pytest.raises(BadSource, match="use another durable"):
            await source.open(NoOthers())
        await source.close()

    asyncio.run(scene())
