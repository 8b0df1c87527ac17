"""One trial on a real database: two workers, the production gate and store, a clock that is moved by hand.

A worker that dies raises at its crash point and can commit nothing from there on. Each delivery has a
thread of its own, and where the handler is async an event loop of its own: a worker can stand still in the
middle while the other one works.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

from oncegate.crashpoints import CrashPoints
from oncegate.errors import Failed, StoreError
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.gate.surface import Surface
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.store import Entry, EntryFilter
from oncegate.testing.clock import ManualClock
from oncegate.testing.crashing import CrashReached
from oncegate.testing.faults import Fault, Faults, faulty
from oncegate.testing.harness.calls import RealCalls, on_trial
from oncegate.testing.harness.databases import Database
from oncegate.testing.harness.mishaps import Mishaps
from oncegate.testing.harness.plans import Mishap, PlannedArrival, Trouble
from oncegate.testing.harness.real_plans import Meanwhile, RealPlan
from oncegate.testing.harness.trial import AT_A_PERSON, DOWN_SECONDS, STALL_SECONDS, WORKERS
from oncegate.testing.simulation.loop import START_TICKS_MS, START_WALL_MS
from oncegate.testing.simulation.store import CommitFault
from oncegate.testing.waiting import DEADLINE_SECONDS
from oncegate.wiring import open_store

ROUND_SECONDS: Final = 150.0  # past the lease and past how long a request may still be under way
ROUNDS_MAX: Final = 12
_OPEN: Final = (State.IN_FLIGHT, State.RETRYABLE)
_FAULTS: Final = {
    CommitFault.NONE: Fault.NONE,
    CommitFault.LOST_REPLY: Fault.LOST_REPLY,
    CommitFault.UNDONE: Fault.UNDONE,
    CommitFault.DOWN: Fault.DOWN,
}

Deliver = Callable[[GateOnStore, Any, Database], Any]


class RealTrial:
    """One run of one plan on one database. `deliver` admits an event; by default at the surface."""

    def __init__(
        self,
        gate: GateOnStore,
        surface: Surface,
        events: list[Any],
        plan: RealPlan,
        seed: int,
        *,
        database: Database,
        deliver: Deliver | None = None,
    ) -> None:
        self.template, self.surface, self.database = gate, surface, database
        self.clock = ManualClock(START_WALL_MS, START_TICKS_MS)
        self.mishaps = Mishaps(item for item in plan if isinstance(item, Mishap) and not item.at)
        self.meanwhile = {(item.point, item.nth) for item in plan if isinstance(item, Meanwhile)}
        self.calls = RealCalls(self.mishaps, lambda: 0.0)
        self.rng = Random(seed)
        self.unsettled, self.waits_for_a_person = "", ""
        self.errors: list[BaseException] = []
        self.open: dict[int, int] = {}
        self.faults = _PlannedFaults(self)
        self._plan, self._events, self._deliver = plan, events, deliver
        self.workers = [RealWorker(self, number) for number in range(WORKERS)]

    def run(self) -> None:
        """Plays the plan to its end."""
        try:
            self._play()
            self._settle()
            self._look()
        finally:
            for worker in self.workers:
                worker.end()

    def _play(self) -> None:
        for at, number in sorted((_moment(item), number) for number, item in enumerate(self._plan)):
            if not at:
                continue  # at a crash point, a commit or a call
            self._go_to(at)
            item = self._plan[number]
            if isinstance(item, PlannedArrival):
                self.open[number] = 0
                self.receive_open()
            elif isinstance(item, Mishap) and item.trouble is Trouble.CLOCK_STEP:
                self.clock.step_wall(7_200)
            elif isinstance(item, Mishap):
                self.faults.down = True
                self.receive_open()
                self.clock.advance(DOWN_SECONDS)
                self.faults.down = False

    def _go_to(self, at: float) -> None:
        passed = (self.clock.ticks_ms() - START_TICKS_MS) / 1000
        if at - passed > ROUND_SECONDS / 2:  # long enough that recovery has looked
            self.clock.advance(ROUND_SECONDS / 2)
            self.workers[int(self.rng.random() * WORKERS)].reconcile()
        self.clock.advance(max(0.0, at - (self.clock.ticks_ms() - START_TICKS_MS) / 1000))

    def _settle(self) -> None:
        """Nothing goes wrong any more: redeliveries and recovery bring everything to its end."""
        self.mishaps.over, self.faults.down, self.meanwhile = True, False, set()
        for turn in range(ROUNDS_MAX):
            if not self.open and not self._has_open():
                return
            self.clock.advance(ROUND_SECONDS * (turn + 1))
            self.workers[turn % WORKERS].reconcile()
            self.receive_open()
        if self.open or self._has_open():
            self.unsettled = "the event did not come to an end once nothing went wrong any more"

    def receive_open(self) -> None:
        """Delivers whatever is not acknowledged, each to the worker whose turn it is."""
        for number in sorted(self.open):
            received, item = self.open.get(number), self._plan[number]
            if received is not None and isinstance(item, PlannedArrival) and self._may_come(item):
                self.open[number] = received + 1
                worker = self.workers[(item.worker + received) % WORKERS]
                if worker.receive(self._events[item.variant]):
                    self.open.pop(number, None)

    def _may_come(self, item: PlannedArrival) -> bool:
        """A changed event is one only beside the event itself: it comes when that is on record."""
        return not item.variant or bool(self._entries())

    def receive_at(self, worker: RealWorker) -> None:
        """The event once more, at one worker; the arrival before it is not acknowledged yet."""
        worker.receive(self._events[0])

    def _has_open(self) -> bool:
        with open_store(self.database.url, clock=self.clock).look() as session:
            return any(one.state in _OPEN for one in session.waiting())

    def _entries(self) -> list[Entry]:
        with open_store(self.database.url, clock=self.clock).look() as session:
            return session.entries(EntryFilter(), None, 100)

    def _look(self) -> None:
        waiting = [one.reason or one.state.label for one in self._entries() if one.state in AT_A_PERSON]
        self.waits_for_a_person = waiting[-1] if waiting else ""

    def admit(self, gate: GateOnStore, event: Any) -> Any:
        """Admits an event as the user does it."""
        if self._deliver is not None:
            return self._deliver(gate, event, self.database)
        if self.surface.is_async:
            return gate.admit(self.surface.name, event)
        return gate.admit_sync(self.surface.name, event)


def _moment(item: PlannedArrival | Mishap | Meanwhile) -> float:
    """When something happens; nothing, if that is not by the clock."""
    return 0.0 if isinstance(item, Meanwhile) else item.at


class _PlannedFaults(Faults):
    """The faults of a trial's commits, by its plan."""

    def __init__(self, trial: RealTrial) -> None:
        super().__init__()
        self._trial = trial

    def next(self) -> Fault:
        """What happens to the coming unit."""
        return Fault.DOWN if self.down else _FAULTS[self._trial.mishaps.commit()]


class _Points(CrashPoints):
    """One life of a worker: dies, stands still, or lets the other one work, where the plan says so."""

    def __init__(self, worker: RealWorker) -> None:
        self._worker, self.is_dead = worker, False
        self._is_elsewhere = False

    def hit(self, name: str) -> None:
        if self.is_dead:
            raise CrashReached(name)
        trial = self._worker.trial
        if self._is_elsewhere or trial.mishaps.over:
            return
        trouble = trial.mishaps.at_point(name)
        if trouble is Trouble.CRASH:
            self.is_dead = True
            raise CrashReached(name)
        is_met = (name, trial.mishaps.seen[name]) in trial.meanwhile
        if (trouble is Trouble.STALL or is_met) and not trial.database.is_held():
            self._is_elsewhere = True
            try:
                self._worker.stand_still(STALL_SECONDS if trouble is Trouble.STALL else 0.0)
            finally:
                self._is_elsewhere = False


class RealWorker:
    """One worker over all its lives."""

    def __init__(self, trial: RealTrial, number: int) -> None:
        self.trial, self._number = trial, number
        self._points = _Points(self)
        self._gate: GateOnStore | None = None

    def _started(self) -> GateOnStore:
        if self._points.is_dead:
            self.end()
        if self._gate is None:
            trial, self._points = self.trial, _Points(self)
            store = faulty(open_store(trial.database.url, clock=trial.clock), trial.faults)
            self._gate = GateOnStore(store, clock=trial.clock, crashpoints=self._points)
            handler, name = on_trial(trial.surface, trial.calls), trial.surface.name
            self._gate.engine.adopt(
                trial.template.engine, lambda s: replace(s, handler=handler) if s.name == name else s
            )
        return self._gate

    def receive(self, event: Any) -> bool:
        """Takes an event; whether it may be acknowledged."""
        gate = self._started()
        points = self._points
        try:
            admission = _in_a_thread(lambda: self.trial.admit(gate, event))
        except Failed:
            return not points.is_dead  # final, and recorded as such
        except CrashReached:
            return False
        except Exception as error:  # noqa: BLE001  a consumer does not acknowledge what raised
            if not points.is_dead:
                self.trial.errors.append(error)
            return False
        is_over = not isinstance(admission, Admission) or admission.verdict is not Verdict.BUSY
        return is_over and not points.is_dead

    def reconcile(self) -> None:
        """What the background jobs of this process do, once."""
        gate = self._started()
        reconciler = Reconciler(gate, at_once=True)
        try:
            if any(surface.is_async for surface in gate.engine.surfaces):
                _in_a_thread(reconciler.run_once_async)
            else:
                _in_a_thread(reconciler.run_once)
        except (CrashReached, StoreError):
            return  # the next turn tries again

    def stand_still(self, seconds: float) -> None:
        """Does nothing while the other worker gets the event and looks after what was left."""
        other = self.trial.workers[(self._number + 1) % WORKERS]
        self.trial.clock.advance(seconds)
        if seconds:
            other.reconcile()
        self.trial.receive_at(other)

    def end(self) -> None:
        """Closes what this life has open."""
        gate, self._gate = self._gate, None
        if gate is not None:
            self._points.is_dead = True  # what it still holds in memory is lost, as at a kill
            gate.close()


def _in_a_thread(work: Callable[[], Any]) -> Any:
    """Runs work to its end in a thread of its own, a coroutine in a loop of its own."""
    found: list[Any] = []

    def run() -> None:
        try:
            answer = work()
            found[:] = [asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer, None]
        except BaseException as error:  # noqa: BLE001  raised in the thread that waits
            found[:] = [None, error]

    thread = threading.Thread(target=run, name="oncegate-trial", daemon=True)
    thread.start()
    thread.join(DEADLINE_SECONDS)
    if not found:
        raise TimeoutError(
            "the handler did not come back; does it wait for something that a trial has not?"
        )
    if found[1] is not None:
        raise found[1]
    return found[0]


async def _awaited(work: Any) -> Any:
    return await work
