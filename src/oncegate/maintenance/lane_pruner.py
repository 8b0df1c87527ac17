"""Forgets deliveries of lanes some time after they were acknowledged, in short steps.

Dead letters, replays and what is not delivered stay, however old; so do lanes, whose seqs go on. Must never
go by a wall clock that has leapt: what was removed cannot be sent once more, and its id is new again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from oncegate.clock import Clock
from oncegate.errors import StoreBusy
from oncegate.maintenance.pruner import sight
from oncegate.maintenance.schedule import Stopping, never
from oncegate.store import LanePruned, LanePruning, Session, Store

KEEP_DELIVERED: Final = timedelta(days=7)
LANES_STEP: Final = 1_000
DELIVERIES_STEP: Final = 500  # keeps one step in the tens of milliseconds
STEPS_MAX: Final = 100  # of one run; the next one goes on where it stopped


@dataclass(slots=True)
class LanesPruned:
    """What one run did; not complete means that there may be more."""

    deliveries: int = 0
    is_complete: bool = False


class LanePruner:
    """Walks the lanes of a ledger, over as many runs as that takes."""

    def __init__(self, store: Store, clock: Clock, keep: timedelta = KEEP_DELIVERED) -> None:
        self._store = store
        self._clock = clock
        self._keep_ms = keep // timedelta(milliseconds=1)
        self._after_lane = 0

    def run_once(self, stopping: Stopping = never) -> LanesPruned:
        """Removes what is old enough, within the bounds; from a thread."""
        report, session = LanesPruned(), self._store.connect()
        try:
            before_ms = sight(session, self._clock).wall_ms - self._keep_ms
            for _ in range(STEPS_MAX):
                if stopping() or self._step(session, before_ms, report):
                    break
        except StoreBusy:
            pass  # others are writing: the next run goes on here
        finally:
            session.close()
        return report

    def _step(self, session: Session, before_ms: int, report: LanesPruned) -> bool:
        """Takes one step; True at the end of the lanes. Where one can write at a time, rests after it."""
        began = self._clock.ticks_ms()
        wanted = LanePruning(None, before_ms, self._after_lane, LANES_STEP, DELIVERIES_STEP)
        with session.unit():
            done: LanePruned = session.prune_deliveries(wanted)
        report.deliveries += done.removed
        report.is_complete, self._after_lane = done.is_end, 0 if done.is_end else done.last_lane
        if self._store.capabilities.one_writer and done.removed:
            self._clock.pause((self._clock.ticks_ms() - began) / 1000)
        return done.is_end
