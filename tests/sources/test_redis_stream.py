"""Redis Streams on a real Valkey: the conformance suite, and what only streams do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from oncegate.errors import BadSource, SourceUnavailable
from oncegate.sources.contract import Source
from oncegate.sources.redis_stream import RedisStream
from oncegate.testing import SourceConformance
from tests.support.servers import Valkey, running


class NoOthers:
    async def drain(self, which: Any, within_seconds: float) -> None:
        return


class Stream:
    """A stream of its own on the shared server."""

    def __init__(self, url: str) -> None:
        self.url, self.name = url, f"s-{uuid4().hex[:10]}"
        asyncio.run(self.do("XGROUP", "CREATE", self.name, "workers", "0", "MKSTREAM"))

    async def do(self, *words: Any) -> Any:
        redis = Redis.from_url(self.url)
        try:
            return await redis.execute_command(*words)
        finally:
            await redis.aclose()

    async def pending(self) -> Any:
        redis = Redis.from_url(self.url)
        try:
            return await redis.xpending_range(self.name, "workers", "-", "+", 10)
        finally:
            await redis.aclose()

    async def send(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            await self.do("XADD", self.name, "*", "body", body, "traceparent", "x")

    def source(self, **options: Any) -> RedisStream:
        return RedisStream(self.url, stream=self.name, group="workers", **options)


@pytest.fixture
def stream(valkey: Valkey) -> Stream:
    return Stream(valkey.url)


class TestRedisStream(SourceConformance):
    @pytest.fixture(autouse=True)
    def own_stream(self, valkey: Valkey) -> None:
        self.stream = Stream(valkey.url)

    def make_source(self) -> Source:
        return self.stream.source(lease=1.2, dead_letters=f"{self.stream.name}:dead")

    def make_missing(self) -> Source:
        return RedisStream(self.stream.url, stream="missing", group="workers")

    async def send(self, bodies: Sequence[bytes], lane: str | None = None) -> None:
        await self.stream.send(bodies)

    async def dead_letters(self) -> list[bytes]:
        found = await self.stream.do("XRANGE", f"{self.stream.name}:dead", "-", "+")
        return [fields[b"body"] for _, fields in found]


def test_a_pending_message_that_was_trimmed_is_told_and_not_passed_over(stream: Stream) -> None:
    """MAXLEN deletes pending messages without a word (trap 36)."""

    async def scene() -> None:
        await stream.send([b"1", b"2"])
        source = stream.source()
        await source.open(NoOthers())
        assert len(await source.receive(2, 1.0)) == 2
        await stream.do("XTRIM", stream.name, "MAXLEN", "0")
        await source.close()
        other = stream.source()
        with pytest.raises(BadSource, match=r"its event is lost.*XACK"):
            await other.open(NoOthers())
        await other.close()

    asyncio.run(scene())


def test_a_trim_while_consuming_is_a_critical_record(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """XAUTOCLAIM names the ids that it found deleted."""

    async def scene() -> None:
        await stream.send([b"1"])
        one, other = stream.source(lease=0.3), stream.source(lease=0.3)
        await one.open(NoOthers())
        await other.open(NoOthers())
        assert len(await one.receive(1, 1.0)) == 1
        await stream.do("XTRIM", stream.name, "MAXLEN", "0")
        for _ in range(100):
            assert await other.receive(1, 0.1) == []
            if caplog.records:
                break
        await one.close()
        await other.close()

    asyncio.run(scene())
    assert any("was trimmed while pending" in record.getMessage() for record in caplog.records)


def test_extending_takes_nothing_back_from_the_worker_that_claimed_it(stream: Stream) -> None:
    """A late worker's heartbeat must not steal the message (trap 37)."""

    async def scene() -> None:
        await stream.send([b"1"])
        late, other = stream.source(lease=0.3), stream.source(lease=0.3)
        await late.open(NoOthers())
        await other.open(NoOthers())
        (old,) = await late.receive(1, 1.0)
        found: Sequence[Any] = []
        while not found:
            found = await other.receive(1, 0.1)
        await late.extend([old])
        await late.give_back(old, 0.0)
        (pending,) = await stream.pending()
        assert pending["consumer"] == other._me.encode()
        await late.close()
        await other.close()

    asyncio.run(scene())


def test_extending_is_no_delivery(stream: Stream) -> None:
    """The count of deliveries stays what it is."""

    async def scene() -> None:
        await stream.send([b"1"])
        source = stream.source()
        await source.open(NoOthers())
        found = await source.receive(1, 1.0)
        for _ in range(3):
            await source.extend(found)
        (pending,) = await stream.pending()
        assert pending["times_delivered"] == 1
        await source.close()

    asyncio.run(scene())


def test_a_consumer_that_ends_leaves_nothing_behind_and_takes_nothing_with_it(stream: Stream) -> None:
    """Removing a consumer that holds messages would remove those too."""

    async def scene() -> None:
        await stream.send([b"1"])
        holds, idle = stream.source(), stream.source()
        await holds.open(NoOthers())
        await holds.receive(1, 1.0)
        await idle.open(NoOthers())
        await idle.receive(1, 0.05)
        await holds.close()
        await idle.close()
        names = [
            dict_of(one)[b"name"] for one in await stream.do("XINFO", "CONSUMERS", stream.name, "workers")
        ]
        assert names == [holds._me.encode()]

    asyncio.run(scene())


def dict_of(flat: Any) -> dict[bytes, Any]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


def test_a_server_that_may_evict_streams_is_refused() -> None:
    """Its memory limit would delete events without a word."""
    with running(Valkey) as server:
        stream = Stream(server.url)

        async def scene() -> None:
            await stream.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            source = stream.source()
            with pytest.raises(BadSource, match=r"allkeys-lru.*noeviction"):
                await source.open(NoOthers())
            await source.close()

        asyncio.run(scene())


def test_a_server_that_is_away_is_told_as_unavailable() -> None:
    """It is tried again, and the message has no password."""

    async def scene() -> None:
        source = RedisStream("redis://user:secret@127.0.0.1:1", stream="s", group="g")
        with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:1") as told:
            await source.open(NoOthers())
        assert "secret" not in str(told.value)
        await source.close()

    asyncio.run(scene())
