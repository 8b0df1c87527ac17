"""Plays a cell of the crash matrix with the gate: real processes on a real ledger, struck at one point.

A worker is struck where it passes the point, its successors too where the cell says so; then the world goes
on without faults until the event has its end, and the site's checks compare what the terminal sold, what
was booked and what the ledger says. In a normal phase the workers are those that the sender reaches, at its
second delivery where only a second attempt comes to the point: the first got no answer from the downstream.
In recovery the first worker was killed before, and the one that recovers is struck.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.crash_matrix.cells import STRIKES_MAX, Cell, Finding, Manner, Phase, Times
from lab.crash_matrix.losses import Loss, Losses
from lab.crash_matrix.site import (
    ASKED,
    FINAL,
    FROM_A_TASK,
    HONOURED,
    JOINED,
    KILLED,
    ROUND_SECONDS,
    ROUNDS_MAX,
    SAME_DATABASE,
    UNREPEATABLE,
    Event,
    Scenario,
    Site,
    _admit,
)
from oncegate.crashpoints import CRASH_POINTS, CrashPoints
from oncegate.errors import OncegateError
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.testing import ArmedCrashPoints, Forked
from oncegate.testing.forking import stop_this_process

SCENARIOS = (HONOURED, ASKED, UNREPEATABLE, SAME_DATABASE, JOINED, FROM_A_TASK)
# Where a first worker is killed so that its successor passes a point: the nearest that does is taken.
FIRST_CRASHES = ("effect.after", "reserve.after", "reserve.before")
# Those points to which another way is shorter, or which only some handlers pass.
SHORTER = {"reserve.after": ("reserve.before",), "start.after": ("reserve.after",)}
ONLY = {"start.after": (UNREPEATABLE,), "probe.before": (ASKED,), "probe.after": (ASKED,)}
# Points that nobody passes before an answer of the downstream got lost, though every worker is well.
AFTER_A_LOST_ANSWER = ("probe.before", "probe.after")
WAIT_SECONDS = 90.0
# A worker that has looked at its claim and stands still before its request leaves: at a downstream that can
# only be asked it must go on within `request_life_max`, 60 s ("the last look" in docs/proof.md).
LAST_LOOK_SECONDS = 25.0
# What waits for an answer of the downstream first, and not of the store.
_BEFORE_CALLS = ("effect.before", "probe.before")


class Injected(Exception):
    """Raised at a crash point."""


@dataclass(frozen=True, slots=True)
class Way:
    """How the point is reached: after which first crash or loss, and in which round of the recovery."""

    first: str | None = None
    rounds: int = 0
    is_answer_lost: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether somebody had the event in hand before."""
        return self.first is not None or self.is_answer_lost


@dataclass(slots=True)
class GateCells:
    """Plays cells on one site; finds out once how each point is reached."""

    site: Site
    losses: Losses = field(default_factory=Losses)
    _normal: dict[str, Counter[str]] = field(default_factory=dict)
    _recovery: dict[tuple[str, str], list[Counter[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.site.wrap = self.losses.wrap

    def play(self, cell: Cell, handlers_max: int = len(SCENARIOS)) -> Finding:
        """Plays a cell with handlers that pass its point; raises AssertionError if a promise broke."""
        most = handlers_max if cell.times is Times.ONCE else 1
        found = Finding()
        played = 0
        for scenario in _candidates(cell.point):
            way = self._way(scenario, cell) if played < most else None
            if way is None:
                continue
            played += 1
            for loss in self._losses_of(cell):
                found.add(self._repeated(cell, scenario, way, loss))
        return found

    def _losses_of(self, cell: Cell) -> tuple[Loss | None, ...]:
        if cell.manner is not Manner.UNKNOWN:
            return (None,)
        return (Loss.ANSWER,) if cell.point in _BEFORE_CALLS else (Loss.DONE, Loss.UNDONE)

    def _repeated(self, cell: Cell, scenario: Scenario, way: Way, loss: Loss | None) -> Finding:
        """One event, struck repeatedly if the cell says so; three, where it passes the point but once."""
        found = Trial(self, cell, scenario, way, loss).play()
        if cell.times is Times.REPEATEDLY and found.strikes < 2:
            for _ in range(STRIKES_MAX - 1):
                found.add(Trial(self, cell, scenario, way, loss).play())
        return found

    # --- how a point is reached ---

    def _way(self, scenario: Scenario, cell: Cell) -> Way | None:
        passes = self._passes(scenario)
        if cell.phase is Phase.NORMAL:
            if cell.point in AFTER_A_LOST_ANSWER:
                return Way(is_answer_lost=True)
            return Way() if passes[cell.point] else None
        for first in SHORTER.get(cell.point, FIRST_CRASHES):
            if not passes[first]:
                continue
            for turn, reached in enumerate(self._rounds(scenario, first)):
                if reached[cell.point]:
                    return Way(first, turn)
        return None

    def _passes(self, scenario: Scenario) -> Counter[str]:
        if scenario.name not in self._normal:
            self._normal |= self.site.passes([scenario])
        return self._normal[scenario.name]

    def _rounds(self, scenario: Scenario, first: str) -> list[Counter[str]]:
        place = (scenario.name, first)
        if place not in self._recovery:
            pilot = self.site.die_at(scenario, (first, 1))
            self._recovery[place] = self.site.recover(scenario, pilot, by_reconciler=True)
        return self._recovery[place]


def _candidates(point: str) -> tuple[Scenario, ...]:
    """The handlers that may pass a point, another one first at each; last the one that holds a lock."""
    others = tuple(scenario for scenario in SCENARIOS if scenario is not SAME_DATABASE)
    start = list(CRASH_POINTS).index(point) % len(others)
    return ONLY.get(point, (*others[start:], *others[:start], SAME_DATABASE))


class Losing(CrashPoints):
    """Arms a loss where the point is passed, the first time or the first few."""

    def __init__(self, name: str, loss: Loss, losses: Losses, times: int = 1) -> None:
        self.reached: Counter[str] = Counter()
        self._name, self._loss, self._losses, self._times = name, loss, losses, times

    def hit(self, name: str) -> None:
        self.reached[name] += 1
        if name == self._name and self.reached[name] <= self._times:
            self._losses.armed = self._loss


class Raising(CrashPoints):
    """Raises where the point is passed, the first time or the first few."""

    def __init__(self, name: str, times: int = 1) -> None:
        self.reached: Counter[str] = Counter()
        self._name, self._times = name, times

    def hit(self, name: str) -> None:
        self.reached[name] += 1
        if name == self._name and self.reached[name] <= self._times:
            raise Injected(name)


class Trial:
    """One event in one cell, with one handler."""

    def __init__(
        self, cells: GateCells, cell: Cell, scenario: Scenario, way: Way, loss: Loss | None
    ) -> None:
        self.site = cells.site
        self.losses = cells.losses
        self.cell, self.scenario, self.way, self.loss = cell, scenario, way, loss
        self.found = Finding(tries=1)

    def play(self) -> Finding:
        """Strikes, lets all settle, checks."""
        event = self._begin()
        if self.cell.manner is Manner.STALL:
            self._stall(event)
        else:
            self._strike(event)
        self.site.recover(self.scenario, event, by_reconciler=self.cell.phase is Phase.RECOVERY)
        case = (str(self.cell), self.scenario.name, self.loss, event["id"])
        assert self.found.strikes, (case, "nothing was struck")
        self.site.check(self.scenario, event, case)
        self.site.check_replayed(self.scenario, event, case)
        self.found.ends["committed" if self.site.state(event) is State.COMMITTED else "for a person"] += 1
        return self.found

    def _begin(self) -> Event:
        """An event; in a recovery one whose first worker was killed, up to the round before the strike."""
        if self.way.is_answer_lost:
            return self._begin_without_answer()
        if self.way.first is None:
            return self.site.new_event(self.scenario)
        event = self.site.die_at(self.scenario, (self.way.first, 1))
        for _ in range(self.way.rounds):
            self.site.clock.advance(ROUND_SECONDS)
            with self._worker(event, CrashPoints()) as worker:
                assert worker.wait(WAIT_SECONDS) == 0
        return event

    def _begin_without_answer(self) -> Event:
        """An event whose first delivery failed, as the downstream's answer to its request got lost."""
        event = self.site.new_event(self.scenario)
        with self._worker(event, Losing("effect.before", Loss.ANSWER, self.losses)) as worker:
            answer = worker.answer(WAIT_SECONDS)
            assert worker.wait(WAIT_SECONDS) == 0
        assert answer is not None
        assert answer["lost"], "the answer was not lost"
        return event

    @property
    def _is_last_look(self) -> bool:
        is_stalled = self.cell.manner is Manner.STALL and self.cell.point == "effect.before"
        return is_stalled and self.scenario is ASKED

    def _turns(self) -> range:
        return range(STRIKES_MAX if self.cell.times is Times.REPEATEDLY else 1)

    def _points(self) -> CrashPoints:
        if self.loss is not None:
            return Losing(self.cell.point, self.loss, self.losses)
        if self.cell.manner is Manner.EXCEPTION:
            return Raising(self.cell.point)
        if self.cell.manner is Manner.STALL:
            return ArmedCrashPoints(self.cell.point, stop_this_process)
        return ArmedCrashPoints(self.cell.point)

    def _worker(self, event: Event, points: CrashPoints) -> Forked:
        """A worker for what is on record in a recovery, else a delivery."""
        by_reconciler = self.cell.phase is Phase.RECOVERY and self.site.state(event) is not None
        work = self._caretake if by_reconciler else self._deliver
        return Forked(lambda: self._done(lambda: work(event, points), points))

    def _done(self, work: Callable[[], None], points: CrashPoints) -> dict[str, Any]:
        told = "done"
        try:
            work()
        except (OncegateError, Injected, ConnectionError) as error:
            told = type(error).__name__
        passed = getattr(points, "reached", {}).get(self.cell.point, 0)
        return {"told": told, "struck": passed > 0, "lost": self.losses.struck}

    def _deliver(self, event: Event, points: CrashPoints) -> None:
        """As its sender delivers it; where an error was raised, the same process is handed it again."""
        gate = self.site.gate(self.scenario, points)
        try:
            _admit(gate, self.scenario, event)
        except Injected:
            with contextlib.suppress(OncegateError):
                _admit(gate, self.scenario, event)
            raise

    def _caretake(self, event: Event, points: CrashPoints) -> None:
        worker = Reconciler(self.site.gate(self.scenario, points), at_once=True)
        if self.scenario.is_async:
            asyncio.run(worker.run_once_async())
        else:
            worker.run_once()

    # --- the four manners ---

    def _strike(self, event: Event) -> None:
        """Workers are killed, interrupted or not answered, one after the other."""
        for turn in self._turns():
            if turn or self.way.has_begun:
                self.site.clock.advance(ROUND_SECONDS)
            with self._worker(event, self._points()) as worker:
                answer, code = worker.answer(WAIT_SECONDS), worker.wait(WAIT_SECONDS)
            if code == KILLED:
                self.found.told["killed"] += 1
            elif answer is None or not answer["struck"]:
                assert code == 0, (self.cell, code)
                return  # the event is over, or is nobody's any more who would come here
            else:
                self._note(answer)
            self.found.strikes += 1

    def _note(self, answer: dict[str, Any]) -> None:
        told = str(answer["told"])
        if self.loss is not None and not answer["lost"]:
            told = "answer lost"  # nothing else was waited for after the point
        self.found.told[told] += 1

    def _stall(self, event: Event) -> None:
        """Workers stop past their lease, others go on, then the stopped ones do."""
        with contextlib.ExitStack() as stack:
            stopped, is_free = [], True
            for turn in self._turns():
                if turn or self.way.has_begun:
                    is_watched = self._is_last_look and turn
                    self.site.clock.advance(LAST_LOOK_SECONDS if is_watched else ROUND_SECONDS)
                worker = stack.enter_context(self._worker(event, self._points()))
                worker.wait_stopped(WAIT_SECONDS)
                if not worker.is_stopped:  # the event is over, or the first one holds the lock
                    is_free = not self._note_meanwhile(worker.answer(WAIT_SECONDS))
                    break
                stopped.append(worker)
            self.found.strikes += len(stopped)
            if is_free:
                self._go_on_meanwhile(event)
            for worker in stopped:
                worker.resume()
                answer = worker.answer(WAIT_SECONDS)
                assert answer is not None, (str(self.cell), "a stopped worker failed when it went on")
                self.found.told[str(answer["told"])] += 1

    def _go_on_meanwhile(self, event: Event) -> None:
        """What others can do while a worker stands still; nothing, if it holds the lock."""
        for _ in range(1 if self._is_last_look else ROUNDS_MAX):
            if self.site.state(event) in FINAL:
                return
            self.site.clock.advance(LAST_LOOK_SECONDS if self._is_last_look else ROUND_SECONDS)
            with self._worker(event, CrashPoints()) as worker:
                if self._note_meanwhile(worker.answer(WAIT_SECONDS)):
                    return

    def _note_meanwhile(self, answer: dict[str, Any] | None) -> bool:
        """Notes what another worker was told; whether the store refused it, as somebody holds the lock."""
        told = "none" if answer is None else str(answer["told"])
        is_refused = told.startswith("Store")
        if is_refused:
            self.found.told[f"meanwhile {told}"] += 1
        return is_refused
