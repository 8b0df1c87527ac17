"""What every simulated run is: faults strike at their moments, then all is healed and must settle.

Knows nothing of what is played; worlds of the gate and of traffic are stages.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lab.simulator.faults import Faults
from lab.simulator.schedule import Fault, FaultKind
from oncegate.testing.simulation import VirtualLoop
from oncegate.testing.simulation.loop import TURNS_MAX, WentInCircles

if TYPE_CHECKING:
    from lab.simulator.mortal import Mortal

SETTLE_SECONDS_MAX: Final = 4 * 3600.0


class Stage(ABC):
    """One run, whatever is played in it: time, chance, faults, notes, and those who wait."""

    workers: Sequence[Mortal]
    turns_max: ClassVar[int] = TURNS_MAX
    aftermath_seconds: ClassVar[float]

    def __init__(self, seed: int, faults: Iterable[Fault]) -> None:
        self.loop = VirtualLoop(self.turns_max)
        self.rng = Random(seed)
        self.faults = Faults(faults)
        self.trace: list[tuple[Any, ...]] = []
        self.unsettled: list[str] = []
        self.store_is_down = False
        self._nobody = Context()
        self._waiting: list[asyncio.Future[None]] = []

    @abstractmethod
    def _begin(self) -> Iterable[float]:
        """Sets everything for its moment; returns these moments."""

    @abstractmethod
    def _is_settled(self) -> bool:
        """Whether everything has come to its end."""

    @abstractmethod
    def _still_open(self) -> Iterable[str]:
        """What has not come to its end."""

    def play(self) -> None:
        """Plays the run to its end."""
        try:
            self._play()
        except WentInCircles as error:
            self.unsettled.append(str(error))
        finally:
            self._bury()

    def _play(self) -> None:
        moments = [*self._begin(), *(fault.at for fault in self.faults.timed)]
        for fault in self.faults.timed:
            self.later(fault.at, self._strike, fault)
        self.loop.run_until(lambda: False, max(moments, default=0.0) + self.aftermath_seconds)
        self._heal()
        if not self.loop.run_until(self._is_settled, self.loop.time() + SETTLE_SECONDS_MAX):
            self.unsettled += self._still_open()

    def _heal(self) -> None:
        """Nothing goes wrong any more, and everybody is up."""
        self.note("heal")
        self.faults.end()
        self._set_store_down(False)
        for worker in self.workers:
            self.loop.end_stall(worker.actor)
            worker.restart()

    def _bury(self) -> None:
        """Ends what the dead left: their code must not notice before all has been noted."""
        for worker in self.workers:
            worker.actor.dead = True
        self.loop.bury()

    def later(self, seconds: float, call: Callable[..., Any], *arguments: Any) -> None:
        """Lets something happen after a while, whoever is alive then."""
        self.loop.call_later(seconds, call, *arguments, context=self._nobody)

    def _strike(self, fault: Fault) -> None:
        """A fault that was set for this moment."""
        if self.faults.over:
            return
        worker = self.workers[fault.worker]
        self.faults.fired[fault.kind] += 1
        if fault.kind is FaultKind.STORE_DOWN:
            self._set_store_down(True)
            self.later(fault.seconds, self._set_store_down, False)
        elif fault.kind is FaultKind.FAILOVER:
            self._fail_over(fault.nth)
        elif fault.kind is FaultKind.CLOCK_STEP:
            worker.clock.wall_offset_ms += int(fault.seconds * 1000)
        elif worker.is_up and fault.kind is FaultKind.STALL_AT_TIME:
            worker.stall(fault.seconds)
        elif worker.is_up:
            worker.crash(fault.seconds)

    def _set_store_down(self, is_down: bool) -> None:
        self.store_is_down = is_down

    def _fail_over(self, commits: int) -> None:
        """The store loses its last commits, where a stage can play that."""
        raise NotImplementedError

    def note(self, *words: Any) -> None:
        """Adds a line to the trace."""
        self.trace.append((round(self.loop.time(), 6), *words))

    def activity(self) -> asyncio.Future[None]:
        """Waits until there may be something to do."""
        waiting: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(waiting)
        return waiting

    def wake(self) -> None:
        """There may be something to do."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            wake(future)


def wake(waiting: asyncio.Future[None]) -> None:
    """Ends a wait, unless it has ended already."""
    if not waiting.done():
        waiting.set_result(None)
