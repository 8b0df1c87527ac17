"""One trial: two workers with a user's handler, one ledger, a plan's arrivals and mishaps, virtual time."""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import replace
from random import Random
from typing import Any, Final, cast

from oncegate.crashpoints import CrashPoints
from oncegate.errors import Failed, StoreError
from oncegate.gate.admission import Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.gate.surface import Surface
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.store import Store
from oncegate.testing.harness.calls import Calls, on_trial
from oncegate.testing.harness.mishaps import Mishaps
from oncegate.testing.harness.plans import Mishap, Plan, PlannedArrival, Trouble
from oncegate.testing.simulation import (
    Actor,
    ActorCrashed,
    Ledger,
    SimulatedCommits,
    SimulatedLeases,
    SimulatedStore,
    VirtualClock,
    VirtualLoop,
)
from oncegate.testing.simulation.commits import Transit, crash
from oncegate.testing.simulation.loop import WentInCircles
from oncegate.testing.simulation.store import CommitFault

WORKERS: Final = 2
STALL_SECONDS: Final = 95.0
DOWN_SECONDS: Final = 25.0
RESTART_SECONDS: Final = 2.0
CARE_SECONDS: Final = 5.0
VISIBILITY_SECONDS: Final = 45.0
SETTLE_SECONDS_MAX: Final = 6 * 3600.0
_OPEN: Final = (State.IN_FLIGHT, State.RETRYABLE)
AT_A_PERSON: Final = (State.UNKNOWN, State.HELD, State.QUARANTINED)


class Trial:
    """One run of one plan. `events` are the event itself and its near-duplicates."""

    def __init__(
        self, gate: GateOnStore, surface: Surface, events: list[Any], plan: Plan, seed: int
    ) -> None:
        self.loop = VirtualLoop()
        self.rng = Random(seed)
        self.ledger = Ledger()
        self.ledger.exists = True
        self.mishaps = Mishaps(item for item in plan if isinstance(item, Mishap) and not item.at)
        self.calls = Calls(self.mishaps, lambda: 0.001 + self.rng.random() * 0.05)
        self.template = gate
        self.surface = surface
        self.is_down = False
        self.unsettled = ""
        self.errors: list[BaseException] = []
        self._nobody = Context()
        self._events = events
        self._plan = plan
        self.open: dict[int, int] = {}
        self.workers = [TrialWorker(self, number) for number in range(WORKERS)]

    def run(self) -> None:
        """Plays the plan to its end."""
        try:
            self._play()
        except WentInCircles as error:
            self.unsettled = str(error)
        finally:
            for worker in self.workers:
                worker.actor.dead = True
            self.loop.bury()

    def _play(self) -> None:
        last = 0.0
        for number, item in enumerate(self._plan):
            last = max(last, item.at)
            if isinstance(item, PlannedArrival):
                self.open[number] = 0
                self.later(item.at, self._receive, number)
            elif item.at:
                self.later(item.at, self._strike, item)
        self.loop.run_until(lambda: False, last + 30.0)
        self._heal()
        if not self.loop.run_until(self._is_settled, self.loop.time() + SETTLE_SECONDS_MAX):
            self.unsettled = "the event did not come to an end once nothing went wrong any more"

    def _heal(self) -> None:
        self.mishaps.over, self.is_down = True, False
        for worker in self.workers:
            worker.store.is_down = False
            self.loop.end_stall(worker.actor)
            worker.restart()
        for number in sorted(self.open):
            self.later(0.1, self._receive, number)

    def _is_settled(self) -> bool:
        return not self.open and not any(row.state in _OPEN for row in self.ledger.tables.rows.values())

    @property
    def waits_for_a_person(self) -> str:
        """Why the event ended in front of a person; nothing, if it did not."""
        rows = self.ledger.tables.rows.values()
        return next((row.reason or row.state.label for row in rows if row.state in AT_A_PERSON), "")

    def later(self, seconds: float, call: Any, *arguments: Any) -> None:
        """Lets something happen after a while, whichever workers are alive then."""
        self.loop.call_later(seconds, call, *arguments, context=self._nobody)

    def _strike(self, mishap: Mishap) -> None:
        if self.mishaps.over:
            return
        if mishap.trouble is Trouble.CLOCK_STEP:
            self.workers[0].clock.wall_offset_ms += 7_200_000
            return
        self._set_down(True)
        self.later(DOWN_SECONDS, self._set_down, False)

    def _set_down(self, is_down: bool) -> None:
        self.is_down = is_down
        for worker in self.workers:
            worker.store.is_down = is_down

    def _receive(self, number: int) -> None:
        received = self.open.get(number)
        item = self._plan[number]
        if received is None or not isinstance(item, PlannedArrival):
            return
        worker = self.workers[(item.worker + received) % WORKERS]
        if worker.actor.dead:
            self.later(1.0, self._receive, number)
            return
        self.open[number] = received + 1
        self.later(VISIBILITY_SECONDS, self._reappear, number, received + 1)
        worker.spawn(self._consume(worker, number, self._events[item.variant]))

    def _reappear(self, number: int, received: int) -> None:
        if self.open.get(number) == received:
            self._receive(number)

    async def _consume(self, worker: TrialWorker, number: int, event: Any) -> None:
        try:
            admission = await worker.gate.admit(self.surface.name, event)
        except Failed:
            self.open.pop(number, None)  # final, and recorded as such
            return
        except Exception as error:  # noqa: BLE001  a consumer does not acknowledge what raised
            self.errors.append(error)
            self._again(number)
            return
        if admission.verdict is Verdict.BUSY:
            self._again(number)
        else:
            self.open.pop(number, None)

    def _again(self, number: int) -> None:
        self.later(2.0 + self.rng.random() * 20, self._receive, number)


class _Points(CrashPoints):
    def __init__(self, worker: TrialWorker) -> None:
        self._worker = worker

    def hit(self, name: str) -> None:
        worker = self._worker
        if worker.actor.dead:
            return
        trouble = worker.trial.mishaps.at_point(name)
        if trouble is Trouble.STALL:
            worker.trial.loop.stall(worker.actor, STALL_SECONDS)
        elif trouble is Trouble.CRASH:
            worker.crash()
            raise ActorCrashed(name)


class TrialWorker:
    """One worker over all its lives."""

    def __init__(self, trial: Trial, number: int) -> None:
        self.trial = trial
        self.clock = VirtualClock(trial.loop)
        self._number = number
        self._lives = 0
        self.actor = Actor("nobody")
        self._start()

    def _start(self) -> None:
        trial = self.trial
        self._lives += 1
        self.actor = Actor(f"worker {self._number}.{self._lives}", self)
        self.store = SimulatedStore(trial.ledger, self.clock, self._fault)
        self.store.is_down = trial.is_down
        store, points = cast("Store", self.store), _Points(self)
        commits = SimulatedCommits(store, clock=self.clock, crashpoints=points, loop=trial.loop, wire=self)
        self._leases = SimulatedLeases(commits, self.clock)
        self.gate = GateOnStore(
            store, clock=self.clock, crashpoints=points, commits=commits, leases=self._leases,
            new_token=lambda: trial.rng.getrandbits(62),
        )  # fmt: skip
        handler = on_trial(trial.surface, trial.calls)
        self.gate.engine.adopt(
            trial.template.engine,
            lambda s: replace(s, handler=handler) if s.name == trial.surface.name else s,
        )
        self._reconciler = Reconciler(self.gate)
        self.spawn(self._care())

    def _fault(self) -> CommitFault:
        return CommitFault.DOWN if self.trial.is_down else self.trial.mishaps.commit()

    def next_journey(self) -> Transit:
        """A few milliseconds each way."""
        return Transit(0.001 + self.trial.rng.random() * 0.01, 0.001 + self.trial.rng.random() * 0.01)

    def spawn(self, work: Any) -> None:
        """Starts a task of this worker's present life."""
        self.trial.loop.create_task(work, context=self.actor.context())

    async def _care(self) -> None:
        while True:
            await asyncio.sleep(self._rest_seconds())
            if self._leases.is_needed:
                self._leases.renew_due()
            try:
                await self._reconciler.run_once_async()
            except StoreError:
                continue  # the next turn tries again

    def _rest_seconds(self) -> float:
        """Short while there is anything to look after, so that long waits cost nothing."""
        rows = self.trial.ledger.tables.rows.values()
        return CARE_SECONDS if any(row.state in _OPEN for row in rows) else 60 * CARE_SECONDS

    def crash(self) -> None:
        """Ends this life; the next one begins soon."""
        crash(self.actor, self.store)
        self.trial.later(RESTART_SECONDS, self.restart)

    def restart(self) -> None:
        """Begins the next life, if this one has ended."""
        if self.actor.dead:
            self._start()
