"""The watch: a background job that measures, evaluates, tells whom it concerns, and keeps the counters few.

Each turn is one look at the ledger and short writes: the time, and what gauges show, for their history. Any
number may run; each has its own alarms, so run it in one place where a notice must come once. Must never
believe a wall clock that has just leapt ahead: the ledger notes what time it was, as for pruning.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec import Struct

from oncegate.clock import Clock
from oncegate.errors import StoreError
from oncegate.signals.alarms import AlarmNotice, Alarms, advance
from oncegate.signals.alerts import Signal, evaluate
from oncegate.signals.definitions import Thresholds
from oncegate.signals.gauges import reading
from oncegate.signals.measures import MINUTE_MS, measure
from oncegate.signals.notifiers import LogNotifier, Notifier
from oncegate.signals.seconds import needless
from oncegate.signals.snapshot import WatchWord
from oncegate.store import Observations, Posting, ResourceDismissal, Session, Store
from oncegate.store.notices import WATCH, WORKERS_MAX

WATCH_EVERY: Final = timedelta(minutes=1)
KEPT_MS: Final = 30 * 86_400_000  # how long it is remembered when a watch was last seen
TRIM_EVERY_MS: Final = 3600 * 1000
MINUTES_KEPT: Final = timedelta(days=8)  # a week's history, with a day to spare; then hours
HOURS_KEPT: Final = timedelta(days=92)  # as long as keys are kept by default
TRIM_STEP: Final = 2_000  # counters in one short unit
TRIM_STEPS_MAX: Final = 50
MUTATIONS_KEPT_MS: Final = 90 * 86_400_000  # how far back a roll-back can lead
UNTOLD_MAX: Final = 100  # notices kept for a notifier that fails; the oldest are given up
_MINUTE: Final = timedelta(minutes=1)


log = logging.getLogger("oncegate.signals")


class WatchReport(Struct, frozen=True):
    """What one turn found and did. `clock_is_doubted`: the wall clock leapt ahead and was not believed."""

    signals: tuple[Signal, ...]
    notices: tuple[AlarmNotice, ...]
    trimmed: int = 0
    clock_is_doubted: bool = False


class Watch:
    """Watches one ledger."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        thresholds: Thresholds | None = None,
        notifiers: Sequence[Notifier] | None = None,
        ping: Callable[[], None] | None = None,
        every: timedelta = WATCH_EVERY,
    ) -> None:
        self._store = store
        self._clock = clock
        self._thresholds = thresholds or Thresholds()
        self._notifiers = (LogNotifier(),) if notifiers is None else tuple(notifiers)
        self._untold: list[deque[AlarmNotice]] = [deque(maxlen=UNTOLD_MAX) for _ in self._notifiers]
        self._ping = ping
        self._every_ms = every // timedelta(milliseconds=1)
        self._writer = f"{socket.gethostname()[:80]}, process {os.getpid()}"
        self._alarms: Alarms = {}
        self._trimmed_at_ms: int | None = None

    def run_once(self, stopping: Callable[[], bool] = lambda: False) -> WatchReport:
        """Measures, evaluates, tells and trims, from a thread.

        A look that ended well, with every notice delivered, ends with the dead man's ping. Its absence
        says that this watch is dead, its ledger away, or a notifier failing.
        """
        session = self._store.connect()
        try:
            with session.unit():
                seen = session.sight(self._clock.wall_ms())
                session.post(self._word(seen.wall_ms))
            with session.unit():
                snapshot = measure(session, self._clock, seen.wall_ms)
            signals = evaluate(snapshot, self._thresholds)
            _keep(session, reading(signals, seen.wall_ms // MINUTE_MS))
            self._settle_needless(session, seen.wall_ms)
            trimmed = self._trim(session, seen.wall_ms // MINUTE_MS, stopping)
        finally:
            session.close()
        self._alarms, notices = advance(self._alarms, signals, self._clock.ticks_ms())
        for notifier, untold in zip(self._notifiers, self._untold, strict=True):
            untold.extend(notices)
            _tell(notifier, untold)
        if self._ping is not None and not any(self._untold):
            _say_alive(self._ping)
        return WatchReport(tuple(signals), tuple(notices), trimmed, seen.doubted_since_ms is not None)

    def _word(self, at_ms: int) -> Posting:
        """That this watch looks, how often and by which limits, for those that look from elsewhere."""
        body = msgspec.json.encode(WatchWord(self._every_ms, self._thresholds))
        return Posting(WATCH, WATCH, self._writer, body, at_ms, KEPT_MS, kept_max=WORKERS_MAX)

    def _settle_needless(self, session: Session, at_ms: int) -> None:
        """Closes findings that turned out to be the resource on record, and forgets old targets."""
        with session.unit():
            for one in needless(session):
                note = "the key owns the same resource: nothing was doubled"
                session.dismiss_resource(ResourceDismissal(one.number, at_ms, "watch", note))
            session.trim_targets(at_ms, TRIM_STEP)
            session.trim_mutations(at_ms - MUTATIONS_KEPT_MS, TRIM_STEP)

    def _trim(self, session: Session, minute: int, stopping: Callable[[], bool]) -> int:
        """Once an hour folds and forgets counters, in short units."""
        now = self._clock.ticks_ms()
        if self._trimmed_at_ms is not None and now - self._trimmed_at_ms < TRIM_EVERY_MS:
            return 0
        self._trimmed_at_ms = now
        fold_before, forget_before = minute - MINUTES_KEPT // _MINUTE, minute - HOURS_KEPT // _MINUTE
        fold_before -= fold_before % 60  # whole hours, so that no window cuts through one
        removed = 0
        for _ in range(TRIM_STEPS_MAX):
            with session.unit():
                step = session.trim_tallies(fold_before, forget_before, TRIM_STEP)
            removed += step
            if not step or stopping():
                break
        return removed


def _keep(session: Session, found: Observations) -> None:
    """Adds to the gauges' history; a gap in it is better than an alarm that is not sent."""
    try:
        with session.unit():
            session.observe([found])
    except StoreError as error:
        log.warning("the readings of this minute could not be kept: %s", error)


def _say_alive(ping: Callable[[], None]) -> None:
    try:
        ping()
    except Exception as error:  # noqa: BLE001  a ping may raise anything; its address is a secret
        log.warning("the dead man's ping was not taken: %s", type(error).__name__)


def _tell(notifier: Notifier, untold: deque[AlarmNotice]) -> None:
    """Tells one after the other; from one that fails on, all are kept for the next turn."""
    while untold:
        try:
            notifier.notify(untold[0])
        except Exception as error:  # noqa: BLE001  a notifier may raise anything
            name = untold[0].signal.definition.name
            log.error(  # no trace: it may come every minute, for as long as a webhook is down
                "no notifier took the alarm %s; tried again later: %s: %s",
                name,
                type(error).__name__,
                error,
            )
            return
        untold.popleft()
