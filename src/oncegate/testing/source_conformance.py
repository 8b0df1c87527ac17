"""A conformance suite for any queue: every clause of `oncegate.sources.contract` that a server can show.

For authors of sources, here or elsewhere. Subclass it in a test file:

    class TestMyQueue(SourceConformance):
        def make_source(self):
            return MyQueue(self.url, self.queue)

        async def send(self, bodies, lane=None):
            ...

Within one test every call of `make_source` must consume the same queue, and the next test must find a new
and empty one (a pytest fixture with `autouse=True` is the place to make it). Choose a lease of one or two
seconds: tests wait for its end. The suite runs under pytest, which it does not import.
"""

from __future__ import annotations

import asyncio
import unittest
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from oncegate.errors import BadSource
from oncegate.sources.contract import Delivery, Source, Traits

DEADLINE_SECONDS: Final = 60.0


class _Alone:
    """An `InFlight` with nothing in flight."""

    async def drain(self, which: Callable[[Delivery], bool], within_seconds: float) -> None:
        return


class Opened:
    """A source that is open, with its traits."""

    def __init__(self, source: Source, traits: Traits) -> None:
        self.source, self.traits = source, traits

    async def next(self, count: int, within_seconds: float = DEADLINE_SECONDS) -> list[Delivery]:
        """Receives until so many deliveries have come; fails after the time."""
        found: list[Delivery] = []
        until = asyncio.get_running_loop().time() + within_seconds
        while len(found) < count and asyncio.get_running_loop().time() < until:
            found += await self.source.receive(count - len(found), min(1.0, within_seconds))
        assert len(found) == count, f"{len(found)} of {count} messages came: {found}"
        return found

    async def nothing(self, seconds: float) -> None:
        """Makes sure that no message comes for a while."""
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            found = await self.source.receive(10, min(left, 1.0))
            assert list(found) == [], f"{found} came"


class SourceConformance:
    """What every source must do."""

    def make_source(self) -> Source:
        """Makes a source that consumes this test's own queue."""
        raise NotImplementedError("override make_source()")

    def make_missing(self) -> Source:
        """Makes a source of a queue that does not exist."""
        raise NotImplementedError("override make_missing()")

    async def send(self, bodies: Sequence[bytes], lane: str | None = None) -> None:
        """Puts messages into the queue, in order."""
        raise NotImplementedError("override send(bodies, lane)")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Opened]:
        """A source that is open while the block lasts."""
        source = self.make_source()
        traits = await source.open(_Alone())
        try:
            yield Opened(source, traits)
        finally:
            await source.close()

    def run(self, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a scene in a loop of its own."""
        asyncio.run(scene())

    def test_messages_come_whole_and_no_more_than_were_asked_for(self) -> None:
        """Bytes are not changed, whatever they are."""

        async def scene() -> None:
            bodies = [b'{"a": 1}', "grün".encode(), b"not json", b'{"b": 2}', b"{}"]
            async with self.opened() as one:
                await self.send(bodies)
                found: list[Delivery] = []
                while len(found) < len(bodies):
                    batch = await one.source.receive(2, 1.0)
                    assert len(batch) <= 2
                    found += batch
                assert Counter(delivery.body for delivery in found) == Counter(bodies)
                assert all(delivery.message_id for delivery in found)
                await one.source.ack(found)

        self.run(scene)

    def test_an_empty_queue_answers_within_the_wait(self) -> None:
        """An idle consumer can be stopped."""

        async def scene() -> None:
            async with self.opened() as one:
                assert list(await asyncio.wait_for(one.source.receive(5, 0.2), DEADLINE_SECONDS)) == []

        self.run(scene)

    def test_a_message_that_comes_while_waiting_ends_the_wait(self) -> None:
        """One message does not wait for others to fill a batch."""

        async def scene() -> None:
            async with self.opened() as one:
                waiting = asyncio.create_task(one.next(1))
                await asyncio.sleep(0.05)
                await self.send([b"1"])
                (delivery,) = await waiting
                await one.source.ack([delivery])

        self.run(scene)

    def test_what_is_acknowledged_does_not_come_again(self) -> None:
        """Also not for the next consumer; what is beside it does."""

        async def scene() -> None:
            await self.send([b"1", b"2", b"3"])
            async with self.opened() as one:
                first, second, third = sorted(await one.next(3), key=lambda delivery: delivery.body)
                await one.source.ack([first, third])
                if one.traits.gives_back:
                    await one.source.give_back(second, 0.0)
            async with self.opened() as one:
                (again,) = await one.next(1)
                assert again.body == b"2"
                await one.source.ack([again])
                await one.nothing(0.3)

        self.run(scene)

    def test_what_is_given_back_comes_again_after_its_delay(self) -> None:
        """Giving back never acknowledges."""

        async def scene() -> None:
            async with self.opened() as one:
                if not one.traits.gives_back:
                    raise unittest.SkipTest("this source cannot give back")
                await self.send([b"1"])
                (delivery,) = await one.next(1)
                loop = asyncio.get_running_loop()
                began = loop.time()
                await one.source.give_back(delivery, 1.0)
                (again,) = await one.next(1)
                assert again.body == b"1"
                assert loop.time() - began > 0.9
                if one.traits.counts_deliveries:
                    assert (delivery.times_delivered, again.times_delivered) == (1, 2)
                await one.source.ack([again])
                await one.nothing(0.3)

        self.run(scene)

    def test_what_is_not_answered_comes_again_when_the_consumer_is_gone(self) -> None:
        """A worker that dies loses nothing."""

        async def scene() -> None:
            await self.send([b"1"])
            async with self.opened() as one:
                await one.next(1)
            async with self.opened() as one:
                (again,) = await one.next(1)
                assert again.body == b"1"
                await one.source.ack([again])

        self.run(scene)

    def test_what_is_extended_is_not_delivered_meanwhile(self) -> None:
        """For longer than the lease; afterwards it comes again."""

        async def scene() -> None:
            async with self.opened() as one:
                lease = one.traits.lease_seconds
                if lease is None:
                    raise unittest.SkipTest("this source has no lease")
                await self.send([b"1"])
                (delivery,) = await one.next(1)
                for _ in range(5):
                    await one.nothing(lease / 3)
                    await one.source.extend([delivery])
                (again,) = await one.next(1)
                assert again.body == b"1"
                await one.source.ack([again])

        self.run(scene)

    def test_late_answers_to_an_old_delivery_disturb_no_other_message(self) -> None:
        """The broker has delivered it again: its old receipt may be refused, quietly."""

        async def scene() -> None:
            async with self.opened() as one:
                lease = one.traits.lease_seconds
                if lease is None:
                    raise unittest.SkipTest("this source has no lease")
                await self.send([b"1"])
                (old,) = await one.next(1)
                (new,) = await one.next(1)
                await self.send([b"2"])
                (other,) = await one.next(1)
                await one.source.extend([old, other])
                await one.source.ack([old, other])
                if one.traits.counts_deliveries:
                    assert new.times_delivered == 2
                await one.source.ack([new])
                await one.nothing(lease * 1.5)

        self.run(scene)

    def test_a_cancelled_receive_loses_no_message(self) -> None:
        """What had come is delivered again."""

        async def scene() -> None:
            async with self.opened() as one:
                waiting = asyncio.create_task(one.source.receive(1, 5.0))
                await asyncio.sleep(0.05)
                waiting.cancel()
                await asyncio.wait([waiting])
                await self.send([b"1"])
                (delivery,) = await one.next(1)
                await one.source.ack([delivery])

        self.run(scene)

    def test_a_buried_message_does_not_come_again(self) -> None:
        """It is among the broker's dead letters."""

        async def scene() -> None:
            async with self.opened() as one:
                if not one.traits.has_dead_letters:
                    raise unittest.SkipTest("this source has no dead letters")
                await self.send([b"bad", b"good"])
                bad, good = sorted(await one.next(2), key=lambda delivery: delivery.body)
                await one.source.bury(bad, "not an event")
                await one.source.ack([good])
                await one.nothing((one.traits.lease_seconds or 0.5) * 1.5)
                assert await self.dead_letters() == [b"bad"]

        self.run(scene)

    async def dead_letters(self) -> list[bytes]:
        """The bodies in the dead-letter queue; only asked where the traits have one."""
        raise NotImplementedError("override dead_letters()")

    def test_a_lane_comes_in_order(self) -> None:
        """Nothing later of a lane comes while an earlier message is neither acknowledged nor back."""

        async def scene() -> None:
            async with self.opened() as one:
                if not one.traits.blocks_lanes:
                    raise unittest.SkipTest("this source keeps no order")
                await self.send([b"1", b"2", b"3"], lane="a")
                found = await one.next(3)
                assert [delivery.body for delivery in found] == [b"1", b"2", b"3"]
                assert {delivery.lane for delivery in found} == {"a"}
                await one.source.ack(found[:1])
                for delivery in found[1:]:
                    await one.source.give_back(delivery, 0.0)
                again = await one.next(2)
                assert [delivery.body for delivery in again] == [b"2", b"3"]
                await one.source.ack(again)

        self.run(scene)

    def test_the_lag_counts_what_waits(self) -> None:
        """Or the broker does not say."""

        async def scene() -> None:
            await self.send([b"1", b"2"])
            async with self.opened() as one:
                assert await one.source.lag() in (None, 2)

        self.run(scene)

    def test_a_missing_queue_is_refused_with_its_name(self) -> None:
        """A person must act: the consumer does not try for ever."""

        async def scene() -> None:
            source, told = self.make_missing(), ""
            try:
                await source.open(_Alone())
            except BadSource as refused:
                told = str(refused)
            finally:
                await source.close()
            assert "missing" in told, f"a missing queue was opened, or not named: {told!r}"

        self.run(scene)

    def test_closing_never_raises(self) -> None:
        """Closed before it was opened, and twice."""

        async def scene() -> None:
            source = self.make_source()
            await source.close()
            await source.open(_Alone())
            await source.close()
            await source.close()

        self.run(scene)
