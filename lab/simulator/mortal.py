"""A worker that can die: crashes, stalls, starts again, and reaches its store over a network that fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, ClassVar

from lab.simulator.schedule import FaultKind
from lab.simulator.stage import Stage
from oncegate.crashpoints import CrashPoints
from oncegate.testing.simulation import Actor, ActorCrashed, VirtualClock
from oncegate.testing.simulation.commits import Transit, crash
from oncegate.testing.simulation.store import CommitFault


class Mortal(ABC):
    """One worker over all its lives."""

    actor: Actor
    store: Any  # whatever the worker reaches: its sessions end with it
    travel_seconds_max: ClassVar[float]  # of a message between worker and store

    def __init__(self, stage: Stage, number: int) -> None:
        self._stage = stage
        self.number = number
        self.clock = VirtualClock(stage.loop)
        self._lives = 0
        self.start()

    def start(self) -> None:
        """Begins a new life: nothing is remembered."""
        self._lives += 1
        self.actor = Actor(f"worker {self.number}.{self._lives}", self)
        self._wake_up()

    @abstractmethod
    def _wake_up(self) -> None:
        """Builds everything anew and begins to work."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Starts a task of this worker's present life."""
        self._stage.loop.create_task(work, context=self.actor.context())

    @property
    def is_up(self) -> bool:
        """Whether it can be given anything."""
        return not self.actor.dead

    def crash(self, restart_seconds: float) -> None:
        """Ends this life; the next one begins after a while."""
        self._stage.note("crash", self.actor.name)
        crash(self.actor, self.store)
        self._stage.later(restart_seconds, self.restart)

    def restart(self) -> None:
        """Begins the next life, if this one has ended."""
        if self.actor.dead:
            self.start()

    def stall(self, seconds: float) -> None:
        """Stops doing anything for a while, without knowing."""
        self._stage.note("stall", self.actor.name, seconds)
        self._stage.loop.stall(self.actor, seconds)

    def next_journey(self) -> Transit:
        """What the network does to the next batch for the store."""
        fault = self._stage.faults.batch()
        there, back = self._travel(), self._travel()
        if fault is None:
            return Transit(there, back)
        if fault.kind is FaultKind.STORE_REQUEST_LOST:
            return Transit(None, None)
        if fault.kind is FaultKind.STORE_REPLY_LOST:
            return Transit(there, None)
        return Transit(there + fault.seconds, back)

    def _travel(self) -> float:
        return 0.001 + self._stage.rng.random() * self.travel_seconds_max

    def _commit_fault(self) -> CommitFault:
        return CommitFault.DOWN if self._stage.store_is_down else self._stage.faults.unit()


class StrikingPoints(CrashPoints):
    """Crash points at which the schedule's faults strike."""

    def __init__(self, worker: Mortal, stage: Stage) -> None:
        self._worker = worker
        self._faults = stage.faults
        self._meant = stage.faults.points_meant

    def hit(self, name: str) -> None:
        """Crashes or stalls, if the schedule says so here."""
        if name not in self._meant:
            return
        worker = self._worker
        if worker.actor.dead:
            return
        fault = self._faults.at_point(name)
        if fault is None:
            return
        if fault.kind is FaultKind.STALL_AT_POINT:
            worker.stall(fault.seconds)
            return
        worker.crash(fault.seconds)
        raise ActorCrashed(name)
