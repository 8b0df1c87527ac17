"""The consumer: receives from one source, lets the gate run each event once, and acknowledges afterwards.

It receives no more than it can start. It acknowledges only what the ledger has on record. It extends what
it holds. When the ledger is away it stops receiving; messages lose no attempt. A programming error stops it
with a critical log record. Stopping has an order: no new receive, wait for the one under way, give back
what was not started, wait for handlers, flush acknowledgements, close.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final, Self

from oncegate.errors import SourceUnavailable, StoreError
from oncegate.gate.facade import GateOnStore
from oncegate.model.backoff import Backoff
from oncegate.sources.attempts import GateAttempts, ReadStanding
from oncegate.sources.contract import Delivery, Traits
from oncegate.sources.counting import ConsumerCounts
from oncegate.sources.extending import Extender
from oncegate.sources.held import HeldDelivery
from oncegate.sources.options import Consumption, check_promises
from oncegate.sources.reading import read_delivery
from oncegate.sources.reporting import Reports
from oncegate.sources.settling import Settling
from oncegate.sources.status import (
    DRAINING,
    ENDED,
    LEDGER_AWAY,
    PAUSED,
    RESTING,
    RUNNING,
    SAY_EVERY_SECONDS,
    STOPPED,
    UNREACHABLE,
    SourceStatus,
)
from oncegate.store import Facet

STOP_SECONDS: Final = 10.0
CANCELLED_WITHIN_SECONDS: Final = 1.0
LEDGER_WAIT_MS: Final = 1_000  # how long receiving pauses after the ledger failed; it doubles
LEDGER_WAIT_MAX_MS: Final = 300_000
LEDGER_WELL_MS: Final = 60_000  # a ledger that fails within so long after it came back has not recovered
LOOK_SECONDS: Final = 1.0  # how long a consumer that must not receive waits before it checks again
AFTER_FAILURE: Final = Backoff(
    base=timedelta(milliseconds=250), cap=timedelta(seconds=30), retry_for=None, jitter=0.5
)
_FAILURES_COUNTED: Final = 20

log = logging.getLogger("oncegate.sources")


class Consumer:
    """Consumes one source while an `async with` block lasts."""

    def __init__(
        self,
        gate: GateOnStore,
        one: Consumption,
        *,
        stop_seconds: float = STOP_SECONDS,
        say_every_seconds: float = SAY_EVERY_SECONDS,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        engine = gate.engine
        self._gate, self._one, self._clock = gate, one, engine.clock
        self._surface = engine.surface(one.surface)
        self._stop_seconds = stop_seconds
        self._jitter = jitter or random.SystemRandom().random
        self.counts = ConsumerCounts(one.surface, self._clock.wall_ms)
        self.failure: BaseException | None = None
        self._settling = Settling(
            one.source, one, GateAttempts(gate, one), self.counts, self._clock,
            stop=self._fail, ledger_away=self._note_ledger_away, released=self._wake,
        )  # fmt: skip
        self._changed = asyncio.Event()
        self._ledger_why: str | None = None
        self._ledger_until_ms, self._ledger_wait_ms = 0, LEDGER_WAIT_MS
        self._ledger_back_ms = -LEDGER_WELL_MS
        self._reports: Reports | None = None
        if Facet.STATS in engine.store.capabilities.facets:
            self._reports = Reports(engine, one, self.status, say_every_seconds)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """The name in lists and logs."""
        return self._one.name

    def status(self) -> SourceStatus:
        """The consumer as it stands."""
        held, now = list(self._settling.held), self._clock.ticks_ms()
        oldest = max((now - one.received_ms for one in held), default=0)
        return self.counts.status(self._settling.traits, len(held), oldest)

    async def __aenter__(self) -> Self:
        if self._reports is not None:
            self._start("report", self._reports.run())
        self._start("acks", self._settling.acks.run())
        self._start("receive", self._keep_receiving())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(self._stop_seconds)

    def _start(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[what] = asyncio.create_task(self._guarded(work), name=f"oncegate-{self.name}-{what}")

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  whatever it is, the consumer ends with it, loudly
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """A program, a setting or an adapter is wrong: receives nothing more, and says so."""
        if self.failure is not None:
            return
        self.failure, self.counts.state = error, STOPPED
        self.counts.failed(f"{type(error).__name__}: {error}")
        log.critical("source %s has stopped: %s", self.name, error, exc_info=error)
        self._wake()

    def _note_ledger_away(self, why: str) -> None:
        """Pauses receiving. A ledger that answers reads and refuses writes is tried less and less often."""
        if self._ledger_why is None:
            now = self._clock.ticks_ms()
            is_again = now - self._ledger_back_ms < LEDGER_WELL_MS
            self._ledger_wait_ms = (
                min(2 * self._ledger_wait_ms, LEDGER_WAIT_MAX_MS) if is_again else LEDGER_WAIT_MS
            )
            self._ledger_until_ms = now + self._ledger_wait_ms
            log.warning("source %s: the ledger cannot be used; receiving is paused: %s", self.name, why)
        self._ledger_why = why

    def _wake(self) -> None:
        self._changed.set()

    @property
    def _is_over(self) -> bool:
        return self._settling.stopping.is_set() or self.failure is not None

    # --- receiving

    async def _keep_receiving(self) -> None:
        traits = await self._opened()
        if traits is None:
            return
        if traits.lease_seconds is not None:
            extender = Extender(self._one, self._surface, self._settling.held, self.counts, self._clock)
            self._start("extend", extender.run(traits))
        most, failures = self._one.held_most(traits), 0
        while not self._is_over:
            free = 0 if await self._must_wait() else self._free(most)
            if free <= 0:
                await self._until_changed(LOOK_SECONDS)
                continue
            try:
                if failures:
                    traits = await self._open()
                found = await self._one.source.receive(min(free, traits.receive_max), traits.poll_seconds)
            except SourceUnavailable as error:
                failures += 1
                await self._after_failure(error, failures)
                continue
            failures, self.counts.state = 0, RUNNING if self.failure is None else STOPPED
            await self._take(found)

    def _free(self, most: int) -> int:
        held = self._settling.held
        return 0 if held.bytes >= self._one.bytes_max else most - len(held)

    async def _opened(self) -> Traits | None:
        """Opens the source, as often as it takes; None where the consumer is stopped first."""
        failures = 0
        while not self._is_over:
            try:
                return await self._open()
            except SourceUnavailable as error:
                failures += 1
                await self._after_failure(error, failures)
        return None

    async def _open(self) -> Traits:
        traits = check_promises(self._one, self._surface, await self._one.source.open(self))
        if self._settling.traits is None:
            for warning in traits.warnings:
                log.warning("source %s: %s", self.name, warning)
        self._settling.traits = traits
        return traits

    async def _after_failure(self, error: SourceUnavailable, failures: int) -> None:
        if failures == 1:
            log.warning("source %s cannot be reached and is tried again: %s", self.name, error)
        self.counts.state = UNREACHABLE
        self.counts.failed(str(error))
        wait = AFTER_FAILURE.delay(min(failures, _FAILURES_COUNTED), min(self._jitter(), 0.999))
        await _within(self._settling.stopping.wait(), wait.total_seconds())

    async def _must_wait(self) -> bool:
        """Whether nothing may be received now; the state says why."""
        if self._ledger_why is not None:
            self.counts.state = LEDGER_AWAY
            return not await self._ledger_answers()
        if self._reports is not None and self._reports.is_paused:
            self.counts.state = PAUSED
            return True
        if self._gate.engine.circuits.rests(self._one.surface) is not None:
            self.counts.state = RESTING
            return True
        return False

    async def _ledger_answers(self) -> bool:
        if self._clock.ticks_ms() < self._ledger_until_ms:
            return False
        try:
            await self._gate.engine.submit(ReadStanding(bytes(24)))
        except StoreError:
            return False
        self._ledger_why = None
        self._ledger_back_ms = self._clock.ticks_ms()
        log.warning("source %s: the ledger can be used again; receiving goes on", self.name)
        return True

    async def _take(self, found: Sequence[Delivery]) -> None:
        now, settling, one = self._clock.ticks_ms(), self._settling, self._one
        self.counts.received += len(found)
        late: list[HeldDelivery] = []
        for delivery in found:
            self.counts.redelivered += (delivery.times_delivered or 1) > 1
            held = read_delivery(delivery, one.decode, one.order_by, now)
            if self._is_over:
                settling.held.add(held)
                late.append(held)
            elif settling.held.add(held):
                task = asyncio.create_task(self._guarded(settling.run_lane(held)))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        await settling.give_back_all(late, 0.0)

    async def _until_changed(self, seconds: float) -> None:
        self._changed.clear()
        if not self._is_over:
            await _within(self._changed.wait(), seconds)

    # --- ending

    async def drain(self, which: Callable[[Delivery], bool], within_seconds: float) -> None:
        """For sources whose partitions leave: see `InFlight.drain`."""
        held = self._settling.held
        self._settling.forget([one for one in held.not_started() if which(one.delivery)])
        until = asyncio.get_running_loop().time() + within_seconds
        while held.matching(which) and (left := until - asyncio.get_running_loop().time()) > 0:
            await self._until_changed(min(left, LOOK_SECONDS))

    async def run_once(self) -> SourceStatus:
        """Consumes what is there now, and ends; what must wait is given back."""
        self._settling.is_once = True
        self._start("acks", self._settling.acks.run())
        try:
            traits = await self._open()
            count = min(self._one.held_most(traits), traits.receive_max)
            while self.failure is None and self._ledger_why is None:
                found = await self._one.source.receive(count, traits.poll_seconds)
                if not found:
                    break
                await self._take(found)
                await asyncio.wait(self._running)
                await self._settling.acks.flushed()
        finally:
            await self.stop(self._stop_seconds)
        if self.failure is not None:
            raise self.failure
        return self.status()

    async def stop(self, seconds: float) -> None:
        """Drains within the time, then lets go of what still runs: nothing of that is acknowledged."""
        loop, settling = asyncio.get_running_loop(), self._settling
        until = loop.time() + seconds
        settling.stopping.set()
        self._wake()
        if self.failure is None:
            self.counts.state = DRAINING
        if (receiving := self._tasks.get("receive")) is not None:
            await asyncio.wait([receiving], timeout=max(0.0, until - loop.time()))
            receiving.cancel()
        if settling.traits is not None:
            await settling.give_back_all(settling.held.not_started(), 0.0)
        if self._running:
            await asyncio.wait(self._running, timeout=max(0.0, until - loop.time()))
        await _within(settling.acks.flushed(), max(CANCELLED_WITHIN_SECONDS, until - loop.time()))
        await self._end_tasks()
        if self.failure is None:
            self.counts.state = ENDED
        if self._reports is not None and "report" in self._tasks:
            await self._reports.run_once()
        await self._one.source.close()

    async def _end_tasks(self) -> None:
        tasks = [*self._running, *self._tasks.values()]
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel("the consumer is stopping")
        if left:
            await asyncio.wait(left, timeout=CANCELLED_WITHIN_SECONDS)


async def _within(work: Coroutine[Any, Any, Any], seconds: float) -> bool:
    """Waits for something, at most so long; tells whether it came."""
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return False
    return True
