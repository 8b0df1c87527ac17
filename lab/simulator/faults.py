"""The faults of one schedule, looked up where they strike, and a count of those that did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from lab.simulator.schedule import Fault, FaultKind
from oncegate.testing.simulation.store import CommitFault

_BATCH: Final = (FaultKind.STORE_REQUEST_LOST, FaultKind.STORE_REPLY_LOST, FaultKind.STORE_SLOW)
_UNIT: Final = {
    FaultKind.COMMIT_DONE_UNKNOWN: CommitFault.LOST_REPLY,
    FaultKind.COMMIT_UNDONE_UNKNOWN: CommitFault.UNDONE,
}
_CALL: Final = (
    FaultKind.CALL_REQUEST_LOST,
    FaultKind.CALL_REPLY_LOST,
    FaultKind.CALL_SLOW,
    FaultKind.CALL_REFUSED,
)
_POINT: Final = (FaultKind.CRASH_AT_POINT, FaultKind.STALL_AT_POINT)


class Faults:
    """What goes wrong in one run; nothing any more once `end` is called."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        faults = tuple(faults)
        self.timed: tuple[Fault, ...] = tuple(fault for fault in faults if fault.at > 0)
        self.fired: Counter[FaultKind] = Counter()
        self.points: Counter[str] = Counter()
        self._batches = {fault.nth: fault for fault in faults if fault.kind in _BATCH}
        self._units = {fault.nth: fault for fault in faults if fault.kind in _UNIT}
        self._calls = {fault.nth: fault for fault in faults if fault.kind in _CALL}
        self._at_points = {(f.name, f.nth): f for f in faults if f.kind in _POINT}
        self._seen = self.points_meant = dict.fromkeys(
            (fault.name for fault in faults if fault.kind in _POINT), 0
        )
        self._batch = self._unit = self._call = 0
        self.over = False

    def end(self) -> None:
        """Nothing goes wrong from now on."""
        self.over = True

    def _strike(self, fault: Fault | None) -> Fault | None:
        if fault is None or self.over:
            return None
        self.fired[fault.kind] += 1
        return fault

    def batch(self) -> Fault | None:
        """What happens to the next batch on its way to the store."""
        self._batch += 1
        return self._strike(self._batches.get(self._batch))

    def unit(self) -> CommitFault:
        """What happens to the next commit."""
        self._unit += 1
        fault = self._strike(self._units.get(self._unit))
        return CommitFault.NONE if fault is None else _UNIT[fault.kind]

    def call(self) -> Fault | None:
        """What happens to the next call of a downstream."""
        self._call += 1
        return self._strike(self._calls.get(self._call))

    def at_point(self, name: str) -> Fault | None:
        """What happens to the worker that has just reached one of `points_meant`."""
        self._seen[name] += 1
        fault = self._strike(self._at_points.get((name, self._seen[name])))
        if fault is not None:
            self.points[name] += 1
        return fault
