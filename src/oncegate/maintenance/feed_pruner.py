"""The feed's pruner: removes published events that are older than the feed's retention, in short steps.

What was delivered to endpoints that follow goes first, so that a lane never knows an id which the feed has
forgotten. Goes by the time that the ledger believes, as the pruner of keys does. Readers that were too slow
get `CursorExpired`. An event's id may be published again afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from oncegate.clock import Clock
from oncegate.maintenance.pruner import sight
from oncegate.maintenance.schedule import Stopping, never
from oncegate.store import LanePruning, Session, Store

STEP_EVENTS: Final = 500  # about 10 ms of writing
STEPS_MAX: Final = 200  # a bounded run; what is left over comes next time

Followers = Callable[[Session], Sequence[str]]


@dataclass(slots=True)
class FeedReport:
    """What one run removed; not complete means that there may be more."""

    events: int = 0
    deliveries: int = 0
    steps: int = 0
    is_complete: bool = False


def nobody(session: Session) -> Sequence[str]:
    """The followers of a feed that is only polled."""
    return ()


class FeedPruner:
    """Removes old events of all feeds of a ledger."""

    def __init__(
        self, store: Store, clock: Clock, retention: timedelta, *, followers: Followers = nobody
    ) -> None:
        self._store, self._clock, self._followers = store, clock, followers
        self._retention_ms = retention // timedelta(milliseconds=1)

    def run_once(self, stopping: Stopping = never) -> FeedReport:
        """Removes what is due, within bounds; from a thread."""
        report = FeedReport()
        session = self._store.connect()
        try:
            before_ms = sight(session, self._clock).wall_ms - self._retention_ms
            with session.unit():
                names = self._followers(session)
            are_done = [self._prune_lanes(session, name, before_ms, report, stopping) for name in names]
            if all(are_done):
                self._prune_feeds(session, before_ms, report, stopping)
        finally:
            session.close()
        return report

    def _prune_lanes(
        self, session: Session, name: str, before_ms: int, report: FeedReport, stopping: Stopping
    ) -> bool:
        """Removes what an endpoint has acknowledged; False if something may be left."""
        after, is_end = 0, False
        while not is_end and self._may_go_on(report, stopping):
            with session.unit():
                step = session.prune_deliveries(LanePruning(name, before_ms, after))
            report.deliveries += step.removed
            after, is_end = step.last_lane, step.is_end
        return is_end

    def _prune_feeds(
        self, session: Session, before_ms: int, report: FeedReport, stopping: Stopping
    ) -> None:
        while not report.is_complete and self._may_go_on(report, stopping):
            with session.unit():
                removed = session.forget_published(before_ms, STEP_EVENTS)
            report.events += removed
            report.is_complete = not removed

    def _may_go_on(self, report: FeedReport, stopping: Stopping) -> bool:
        """Counts a step; where all wait for one writer, others get a turn in between."""
        if report.steps >= STEPS_MAX or stopping():
            return False
        if report.steps and self._store.capabilities.one_writer:
            self._clock.pause(0.002)
        report.steps += 1
        return True
