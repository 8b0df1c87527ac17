"""Which downstreams rest: one circuit each, for arrivals, accepted events and recovery of one process.

A downstream that is not reached, or whose calls fail for many events in a row, is left alone as a whole.
After its rest one call at a time tries; the first that is answered lets all others go on. Must never decide
whether an effect may be called again, only when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Final

from oncegate.gate.runtime.reachability import Reach
from oncegate.model.circuit import REST_MS, Circuit, CircuitState

TRIAL_MS_MAX: Final = 60_000  # a trial that has no end by then makes room for another one


class Circuits:
    """The circuits of one gate's downstreams; one that never failed has none."""

    def __init__(self, ticks_ms: Callable[[], int]) -> None:
        self._ticks_ms = ticks_ms
        self._circuits: dict[str, Circuit] = {}
        self.known = self._circuits.keys()  # empty while every downstream is well: then nobody need ask
        self._trials: dict[str, tuple[int, int]] = {}  # by downstream: whose trial, and since when
        self._met: dict[str, set[str]] = {}
        self._lock = Lock()

    def all(self) -> dict[str, Circuit]:
        """Every circuit that has been opened, by its downstream."""
        return dict(self._circuits)

    def rest_ms(self, downstream: str) -> int | None:
        """How long a downstream is still left alone; None if it may be called now."""
        circuit = self._circuits.get(downstream)
        return None if circuit is None else self._rest_ms(downstream, circuit)

    def rests(self, surface: str, downstreams: Iterable[str] = ()) -> tuple[str, int] | None:
        """A downstream that an event of a surface would meet and that rests, by what its like have met."""
        if not self._circuits:
            return None
        for name in sorted({*self._met.get(surface, ()), *downstreams}):
            if (rest_ms := self.rest_ms(name)) is not None:
                return name, rest_ms
        return None

    def is_unwell(self, surface: str) -> bool:
        """Whether a downstream that events of a surface have met is down, or was not tried since."""
        if not self._circuits:
            return False
        met = [self._circuits.get(name) for name in self._met.get(surface, ())]
        return any(circuit is not None and circuit.openings for circuit in met)

    def why(self, downstream: str) -> str:
        """Why a downstream rests, in a sentence."""
        circuit = self._circuits.get(downstream)
        error = "" if circuit is None or not circuit.error else f": {circuit.error}"
        return f"{downstream} is down and rests; one call at a time tries{error}"

    def begin(self, downstream: str, entry_id: int) -> int | None:
        """Takes a call's turn; how long to wait where there is none. `end` must follow a turn."""
        if downstream not in self._circuits:
            return None
        with self._lock:
            circuit = self._circuits[downstream]
            rest_ms = self._rest_ms(downstream, circuit)
            if rest_ms is None and circuit.state(self._ticks_ms()) is CircuitState.HALF_OPEN:
                self._trials[downstream] = (entry_id, self._ticks_ms())
            return rest_ms

    def end(self, downstream: str, entry_id: int) -> None:
        """Ends a turn, however the call went."""
        if self._trials and self._trials.get(downstream, (None, 0))[0] == entry_id:
            with self._lock:
                self._trials.pop(downstream, None)

    def answered(self, downstream: str) -> None:
        """Notes that a downstream answered."""
        if downstream in self._circuits:
            with self._lock:
                self._circuits[downstream].succeed()

    def failed(self, surface: str, downstream: str, entry_id: int, reach: Reach, error: str) -> None:
        """Notes that a downstream was not reached or did not answer; it may rest from now on."""
        if reach is Reach.UNTOLD:
            return
        with self._lock:
            self._met.setdefault(surface, set()).add(downstream)
            circuit = self._circuits.setdefault(downstream, Circuit())
            is_reached = reach is not Reach.NOT_REACHED
            circuit.fail(entry_id, self._ticks_ms(), error, reached=is_reached)

    def _rest_ms(self, downstream: str, circuit: Circuit) -> int | None:
        now = self._ticks_ms()
        if (rest_ms := circuit.opens_in_ms(now)) is not None:
            return rest_ms
        if circuit.state(now) is CircuitState.CLOSED or (trial := self._trials.get(downstream)) is None:
            return None
        return REST_MS if now - trial[1] < TRIAL_MS_MAX else None
