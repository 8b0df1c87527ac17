"""The engine: one asyncio task for each lane in flight, fed by one that leases heads.

A lane's task delivers its head, records what came of it, and goes straight on with the next event that the
record brought back; acknowledgements of all lanes meet in the same group commits. Waiting is in the ledger:
a lane that waits or is blocked has no task here and costs nothing.

What it must never do: begin an event before the one ahead of it is recorded, count a wait as an attempt, or
hold more than its destinations' concurrency.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from typing import Final, Self

from msgspec import Struct

from oncegate.clock import Clock, SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.lane_operations import Enqueue, Extend, LeaseHeads, Release
from oncegate.crashpoints import CrashPoints
from oncegate.errors import ConfigError, StoreError
from oncegate.lanes.circuit_status import TELL_SECONDS, CircuitBoard
from oncegate.lanes.destinations import Destination, Traffic
from oncegate.lanes.leases import Leases
from oncegate.lanes.outcomes import RetryLater, Tried
from oncegate.lanes.recording import AttemptRecorder
from oncegate.model.circuit import CircuitState
from oncegate.store import Delivery, HeadHeld, Heads, HeadsWanted, Outgoing, Placed

LEASE_MS: Final = 15_000  # how long a killed process keeps its lanes; extended while a delivery runs
LOOK_SECONDS: Final = 0.02  # how soon work of other processes is looked for after there was some,
LOOK_SECONDS_MAX: Final = 0.2  # and how seldom when there is none
TROUBLE_SECONDS_MAX: Final = 5.0  # between two looks at a store that fails
ROW_MAX: Final = 100  # events of one lane in a row, before other lanes have their turn
LEASED_AT_ONCE_MAX: Final = 512  # keeps one answer of the ledger small
STOP_SECONDS: Final = 30.0

log = logging.getLogger("oncegate.lanes")


class Pass(Struct, frozen=True):
    """What one pass over all that was due came to; when something is due next, if anything."""

    delivered: int
    failed: int
    next_due_in_ms: int | None


class Engine:
    """Works on the lanes of some destinations. Any number of engines may work on the same ones."""

    def __init__(
        self,
        commits: GroupCommit,
        destinations: Sequence[Destination],
        *,
        clock: Clock | None = None,
        crashpoints: CrashPoints | None = None,
        jitter: Callable[[], float] | None = None,
        new_token: Callable[[], int] | None = None,
        actor: str = "engine",
        lease_ms: int = LEASE_MS,
    ) -> None:
        self._commits = commits
        self._clock = clock or SystemClock()
        self._points = crashpoints or CrashPoints()
        self._new_token = new_token or (lambda: secrets.randbits(63))
        self._leases = Leases(lease_ms)
        self._board = CircuitBoard(commits, self._clock, self._new_token())
        self._recorder = AttemptRecorder(
            commits, self._clock, self._points, jitter or random.SystemRandom().random, actor
        )
        self._traffic: dict[str, Traffic] = {}
        self._removed: dict[str, Traffic] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._recording: set[asyncio.Task[None] | None] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._stopping = False
        for destination in destinations:
            self.add(destination)

    def add(self, destination: Destination) -> None:
        """Adds a destination, also while running."""
        if destination.name in self._traffic:
            raise ConfigError(f"destination {destination.name!r} is added twice")
        before = self._removed.pop(destination.name, None)
        self._traffic[destination.name] = Traffic(destination, self._clock.ticks_ms(), before)
        self.wake()

    def remove(self, name: str) -> None:
        """Begins nothing more at a destination, successors neither; what is in flight there ends."""
        traffic = self._traffic.pop(name, None)
        if traffic is not None:
            traffic.is_removed = True
            if traffic.in_flight:
                self._removed[name] = traffic

    def circuits(self) -> dict[str, CircuitState]:
        """The circuit of each destination, as this engine has it."""
        now = self._clock.ticks_ms()
        return {name: traffic.circuit.state(now) for name, traffic in self._traffic.items()}

    @property
    def in_flight(self) -> int:
        """How many lanes are being delivered now."""
        return len(self._tasks)

    def counts(self) -> tuple[int, int]:
        """How many deliveries and how many failed attempts this engine has recorded."""
        return self._recorder.counts()

    def wake(self) -> None:
        """Says, from any thread, that there may be work."""
        loop, woken = self._loop, self._woken
        if loop is not None and woken is not None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(woken.set)

    async def enqueue(self, event: Outgoing) -> Placed:
        """Enqueues an event and delivers it without waiting for the next look."""
        placed = await self._commits.submit_async(Enqueue(event))
        self.wake()
        return placed

    # --- one pass, for tests and for whoever drives the engine step by step ---

    async def run_once(self) -> Pass:
        """Leases all that is due, delivers it with all that follows from it, and tells what is due next."""
        before = self._recorder.counts()
        next_due = await self._lease()
        while self._tasks:
            await asyncio.wait(self._tasks)
            next_due = await self._lease()
        await self.tell()
        delivered, failed = self._recorder.counts()
        return Pass(delivered - before[0], failed - before[1], next_due)

    # --- running ---

    async def start(self) -> None:
        """Begins to work, in the running loop."""
        if self._loops:
            raise ConfigError("this engine runs already")
        self._loop, self._woken, self._stopping = asyncio.get_running_loop(), asyncio.Event(), False
        work = (self._look(), self._keep_leases(), self._keep_telling())
        self._loops = [asyncio.create_task(one) for one in work]

    async def stop(self, grace_seconds: float = STOP_SECONDS) -> None:
        """Begins nothing more, lets what is in flight end, and releases what does not.

        What came of an attempt is recorded to the end: only what still waits for an answer is cut short.
        """
        self._stopping = True
        await _cancelled(self._loops[:1])
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_seconds)
        await _cancelled([task for task in self._tasks if task not in self._recording])
        if self._tasks:
            await asyncio.wait(self._tasks)
        await _cancelled(self._loops)
        await self._recorder.stats.tell()
        await self._board.take_down()
        self._loops, self._loop, self._woken = [], None, None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _look(self) -> None:
        """Leases whenever there may be work: woken, when something is due, or after a while."""
        assert self._woken is not None
        wait = trouble = LOOK_SECONDS
        while not self._stopping:
            self._woken.clear()
            began = len(self._tasks)
            try:
                next_due = await self._lease()
            except Exception as error:  # noqa: BLE001  an engine that looks no more would lose all to come
                self._report("looking for work", error)
                await asyncio.sleep(trouble)
                trouble = min(trouble * 2, TROUBLE_SECONDS_MAX)
                continue
            trouble = LOOK_SECONDS
            wait = LOOK_SECONDS if len(self._tasks) > began else min(wait * 1.5, LOOK_SECONDS_MAX)
            limit = wait if next_due is None else min(wait, max(next_due, 1) / 1000)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), limit)

    async def _lease(self) -> int | None:
        """Leases what there is room for and begins to deliver it; tells when something is due next."""
        asked_at = self._clock.ticks_ms()
        rooms = {name: traffic.room(asked_at) for name, traffic in self._traffic.items()}
        wanted = tuple((name, min(room, LEASED_AT_ONCE_MAX)) for name, room in rooms.items() if room > 0)
        waits = [wait for traffic in self._traffic.values() for wait in traffic.opens_in_ms(asked_at)]
        if wanted:
            heads = await self._lease_heads(HeadsWanted(wanted, self._leases.lease_ms, self._new_token()))
            self._leases.compare(heads.now_ticks, asked_at)
            if heads.deliveries:
                self._points.hit("lane.lease.after")
            gone = [delivery for delivery in heads.deliveries if not self._begin(delivery)]
            await self._give_back(*gone)
            if heads.next_due_ticks is not None:
                waits.append(heads.next_due_ticks - heads.now_ticks)
        return min(waits, default=None)

    async def _lease_heads(self, wanted: HeadsWanted) -> Heads:
        """Leases to the end, also when cancelled; heads without a worker are released then."""
        leasing = asyncio.ensure_future(self._commits.submit_async(LeaseHeads(wanted)))
        try:
            return await asyncio.shield(leasing)
        except asyncio.CancelledError:
            with contextlib.suppress(StoreError):
                await self._give_back(*(await leasing).deliveries)
            raise

    def _begin(self, delivery: Delivery) -> bool:
        """Begins to deliver; False where the destination was removed meanwhile."""
        traffic = self._traffic.get(delivery.destination)
        if traffic is None:
            return False
        traffic.begin()
        self._leases.hold(delivery)
        task = asyncio.create_task(self._work(traffic, delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _work(self, traffic: Traffic, first: Delivery) -> None:
        """Delivers one event of a lane after the other."""
        current: Delivery | None = first
        task = asyncio.current_task()
        try:
            for turn in range(1, ROW_MAX + 1):
                assert current is not None
                self._points.hit("lane.deliver.before")
                if not self._leases.holds(current, self._clock.ticks_ms()):
                    # We stood still for too long, and somebody else may be further on in this lane.
                    await self._give_back(current)
                    return
                tried = await self._attempt(traffic, current)
                done, current = current, await self._record(traffic, current, tried, turn, task)
                self._leases.drop(done)
                if current is None:
                    return
                self._leases.hold(current)
        except asyncio.CancelledError:
            await self._give_back(*([] if current is None else [current]))
            raise
        except Exception as error:  # noqa: BLE001  nothing is known to be recorded: the lease lapses
            self._report(f"a lane of {first.destination}", error)
        finally:
            if current is not None:
                self._leases.drop(current)
            traffic.end()
            if self._woken is not None:
                self._woken.set()

    async def _record(
        self,
        traffic: Traffic,
        delivery: Delivery,
        tried: Tried,
        turn: int,
        task: asyncio.Task[None] | None,
    ) -> Delivery | None:
        """Records an outcome; `stop` does not cancel a task that is here."""
        now = self._clock.ticks_ms()
        goes_on = turn < ROW_MAX and not self._stopping and traffic.may_follow(now)
        traffic.pace.take(int(goes_on))
        lease_ms, next_holder = (self._leases.lease_ms, self._new_token()) if goes_on else (0, 0)
        self._recording.add(task)
        try:
            successor = await self._recorder.record(traffic, delivery, tried, lease_ms, next_holder)
            if successor is not None and self._stopping:
                await self._give_back(successor)
                successor = None
        finally:
            self._recording.discard(task)
        if goes_on and successor is None:
            traffic.pace.take(-1)
        return successor

    async def _attempt(self, traffic: Traffic, delivery: Delivery) -> Tried:
        began_us = self._clock.elapsed_us()
        try:
            outcome = await traffic.destination.deliver(delivery)
        except Exception as error:  # noqa: BLE001  whatever it is, the attempt failed and is tried again
            outcome = RetryLater(f"{type(error).__name__}: {error}")
        took_ms = (self._clock.elapsed_us() - began_us) // 1_000
        self._points.hit("lane.deliver.after")
        return Tried(outcome, took_ms)

    async def _give_back(self, *deliveries: Delivery) -> None:
        """Lets others have heads at once; what fails lapses. Goes on to the end when cancelled."""
        if not deliveries:
            return
        held = [HeadHeld(delivery.lane_id, delivery.fence, delivery.holder) for delivery in deliveries]
        giving = (self._commits.submit_async(Release(head)) for head in held)
        await asyncio.shield(asyncio.gather(*giving, return_exceptions=True))

    async def _keep_leases(self) -> None:
        """Extends leases of deliveries that take long."""
        while True:
            await asyncio.sleep(self._leases.lease_ms / 1000 / 6)
            await self.extend_due()

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(TELL_SECONDS)
            await self.tell()

    async def tell(self) -> None:
        """Writes how deliveries went, and tells other processes which circuits have changed."""
        await self._recorder.stats.tell()
        await self.tell_circuits()

    async def tell_circuits(self) -> None:
        """Tells other processes how the circuits stand, where that has changed."""
        await self._board.tell({name: traffic.circuit for name, traffic in self._traffic.items()})

    async def extend_due(self) -> int:
        """Extends every lease that has less than half of its time left; tells how many were."""
        asked_at = self._clock.ticks_ms()
        due = self._leases.due(asked_at)
        answers = await asyncio.gather(*map(self._extend, due))
        for held, kept in zip(due, answers, strict=True):
            if kept:
                self._leases.extended(held, asked_at)
            elif kept is False:
                self._leases.lost(held)
        return sum(map(bool, answers))

    def _report(self, what: str, error: Exception) -> None:
        """A store that is away is expected and mends itself; anything else is a fault of ours."""
        if isinstance(error, StoreError):
            log.info("%s: %s: %s", what, type(error).__name__, error)
        else:
            log.error("%s failed", what, exc_info=error)

    async def _extend(self, held: HeadHeld) -> bool | None:
        try:
            return await self._commits.submit_async(Extend(held))
        except StoreError:
            return None  # tried again at the next turn; if that fails too the lease lapses


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancels all, then waits for all: what they give back meets in the same commits."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
