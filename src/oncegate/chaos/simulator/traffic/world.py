"""One run of traffic: its faults strike; then nothing goes wrong any more and all must settle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from hashlib import sha256
from random import Random
from typing import Any, Final

from oncegate.chaos.simulator.faults import Faults
from oncegate.chaos.simulator.schedule import Fault, FaultKind
from oncegate.chaos.simulator.traffic.evidence import Reading, Told, TrafficEvidence
from oncegate.chaos.simulator.traffic.plan import ENTRIES, WORKERS, Emit, Publish, TrafficSchedule
from oncegate.chaos.simulator.traffic.receiver import Receiver
from oncegate.chaos.simulator.traffic.worker import TrafficWorker
from oncegate.model.states import State
from oncegate.store import Reservation, Settlement
from oncegate.testing.simulation import VirtualClock, VirtualLoop
from oncegate.testing.simulation.embedded import EmbeddedStore, new_database
from oncegate.testing.simulation.loop import WentInCircles

AFTERMATH_SECONDS: Final = 30.0
SETTLE_SECONDS_MAX: Final = 4 * 3600.0
AGAIN_SECONDS: Final = 45.0  # after which whoever got no answer asks again
TURNS_MAX: Final = 40_000
_OPEN: Final = "SELECT count(*) FROM oncegate_lane WHERE state <> 1"
_FEED: Final = "SELECT count(*) FROM oncegate_feed"


class TrafficWorld:
    """Everything in one simulated run."""

    def __init__(self, schedule: TrafficSchedule) -> None:
        self.schedule = schedule
        self.loop = VirtualLoop(TURNS_MAX)
        self.rng = Random(schedule.seed)
        self.faults = Faults(schedule.faults)
        self.database = new_database()
        self.evidence = TrafficEvidence(self.database)
        self.trace: list[tuple[Any, ...]] = []
        self.store_is_down = False
        self._nobody = Context()
        self._looked_at: tuple[int, ...] = ()
        self._waiting: list[asyncio.Future[None]] = []
        self._open = dict(enumerate(schedule.work))
        refusals = {_name(n, i): i.refusals for n, i in self._open.items() if isinstance(i, Emit)}
        self.evidence.dead = {event for event, times in refusals.items() if times < 0}
        self.receiver = Receiver(self, refusals)
        self._entries = self._hold_entries()
        self.workers = [TrafficWorker(self, number) for number in range(WORKERS)]

    def _hold_entries(self) -> list[tuple[int, int]]:
        """Entries that wait for a person: each with the fence that everybody has seen."""
        session = EmbeddedStore(self.database, VirtualClock(self.loop)).connect()
        held = []
        with session.unit():
            for number in range(ENTRIES):
                key = bytes([number]) * 24
                (made,) = session.reserve(
                    [
                        Reservation(
                            key, "", "bookings", "a booking", b"f" * 16, b"{}", 1, 30_000, 5, number + 1
                        )
                    ]
                )
                session.settle(
                    [
                        Settlement(
                            made.entry_id, made.fence, State.HELD, 1, "gate", reason="a person must look"
                        )
                    ]
                )
                (entry,) = session.read([key])
                held.append((entry.entry_id, entry.fence))
        return held

    def run(self) -> TrafficEvidence:
        """Plays the schedule to its end."""
        try:
            self._play()
        except WentInCircles as error:
            self.evidence.unsettled.append(str(error))
        finally:
            for worker in self.workers:
                worker.actor.dead = True
            self.loop.bury()
        return self.evidence

    def _play(self) -> None:
        for number, item in self._open.items():
            self.later(item.at, self._ask, number)
        for fault in self.faults.timed:
            self.later(fault.at, self._strike, fault)
        moments = [item.at for item in self.schedule.work] + [fault.at for fault in self.faults.timed]
        self.loop.run_until(lambda: False, max(moments, default=0.0) + AFTERMATH_SECONDS)
        self._heal()
        if not self.loop.run_until(self._is_settled, self.loop.time() + SETTLE_SECONDS_MAX):
            self._note_unsettled()

    def _heal(self) -> None:
        self.note("heal")
        self.faults.end()
        self.store_is_down = False
        for worker in self.workers:
            self.loop.end_stall(worker.actor)
            worker.restart()
        self.wake()

    # --- what is to be done, until somebody says that it is ---

    def _ask(self, number: int) -> None:
        """Asks a worker that is up, and again after a while if there was no answer."""
        item = self._open.get(number)
        if item is None:
            return
        self.later(AGAIN_SECONDS, self._ask, number)
        up = [worker for worker in self.workers if worker.is_up]
        if up:
            worker = up[self.rng.randrange(len(up))]
            worker.spawn(self._work(worker, number, item))

    async def _work(self, worker: TrafficWorker, number: int, item: Any) -> None:
        try:
            answer = await self._done(worker, number, item)
        except Exception as error:  # noqa: BLE001  whatever it is, nobody has been told that it is done
            self.note("no answer", number, type(error).__name__)
            return
        self.note("answer", number, answer)
        self._open.pop(number, None)
        self.wake()

    async def _done(self, worker: TrafficWorker, number: int, item: Any) -> str:
        name = _name(number, item)
        if isinstance(item, Emit):
            self.evidence.emitted[name] = item.key
            return await worker.emit(name, item)
        if isinstance(item, Publish):
            self.evidence.published[name] = item.key
            return await worker.publish(name, item)
        entry, fence = self._entries[item.entry]
        answer = await worker.rule(entry, fence, item)
        self.evidence.told.append(Told(entry, item.operator, item.approves, answer))
        return answer

    # --- whether there is anything left to do ---

    def lanes_are_empty(self) -> bool:
        """Whether no lane has anything to deliver."""
        ((count,),) = self.evidence.rows(_OPEN)
        return int(count) == 0

    def has_read_all(self, reading: Reading) -> bool:
        """Whether a consumer has everything that is in the feed."""
        ((count,),) = self.evidence.rows(_FEED)
        return len(set(reading.events)) >= int(count)

    def _all_is_read(self) -> bool:
        return self.has_read_all(self.evidence.by_cursor) and self.has_read_all(self.evidence.by_ack)

    def _is_settled(self) -> bool:
        """Asked at every turn; looks only where something has changed."""
        readings = len(self.evidence.by_cursor.events), len(self.evidence.by_ack.events)
        state = (len(self._open), self.database.total_changes, *readings)
        if state == self._looked_at:
            return False
        self._looked_at = state
        return not self._open and self.lanes_are_empty() and self._all_is_read()

    def _note_unsettled(self) -> None:
        self.evidence.unsettled += [
            f"{_name(n, item)} was never answered" for n, item in self._open.items()
        ]
        if not self.lanes_are_empty():
            self.evidence.unsettled.append("lanes have not come to their end")
        if not self._all_is_read():
            self.evidence.unsettled.append("the feed was not read to its end")

    async def rest(self, seconds: float, has_nothing: Callable[[], bool]) -> None:
        """Waits until something is asked for, and where there is something to do, only for a while."""
        waiting: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(waiting)
        if not has_nothing():
            self.loop.call_later(seconds, _wake, waiting)
        await waiting

    def wake(self) -> None:
        """There may be something to do."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            _wake(future)

    # --- time, faults and notes ---

    def later(self, seconds: float, call: Callable[..., Any], *arguments: Any) -> None:
        """Lets something happen after a while, whoever is alive then."""
        self.loop.call_later(seconds, call, *arguments, context=self._nobody)

    def travel(self) -> float:
        """How long a message takes."""
        return 0.001 + self.rng.random() * 0.02

    def _strike(self, fault: Fault) -> None:
        if self.faults.over:
            return
        worker = self.workers[fault.worker]
        self.faults.fired[fault.kind] += 1
        if fault.kind is FaultKind.STORE_DOWN:
            self._set_store_down(True)
            self.later(fault.seconds, self._set_store_down, False)
        elif fault.kind is FaultKind.CLOCK_STEP:
            worker.clock.wall_offset_ms += int(fault.seconds * 1000)
        elif worker.is_up and fault.kind is FaultKind.STALL_AT_TIME:
            worker.stall(fault.seconds)
        elif worker.is_up:
            worker.crash(fault.seconds)

    def _set_store_down(self, is_down: bool) -> None:
        self.store_is_down = is_down and not self.faults.over

    def note(self, *words: Any) -> None:
        """Adds a line to the trace."""
        self.trace.append((round(self.loop.time(), 6), *words))

    def digest(self) -> str:
        """The whole trace in a few letters: equal for equal runs."""
        return sha256(repr(self.trace).encode()).hexdigest()[:16]


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _name(number: int, item: Any) -> str:
    return f"{type(item).__name__.lower()} {number}"
