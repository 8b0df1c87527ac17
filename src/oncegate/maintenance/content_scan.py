"""The scan for content duplicates: the same change to the same target, wanted twice under different keys.

Goes through the marks of content where the last scan stopped, in short steps. What has not run is stopped
for a person; what has run stays as it is and is listed. Must never drop or undo anything by itself: two
equal events may well be meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from oncegate.clock import Clock
from oncegate.errors import StoreBusy
from oncegate.gate.runtime.not_run_log import LINES_MAX, log
from oncegate.maintenance.schedule import Stopping, never
from oncegate.model.content import WINDOW
from oncegate.store import ContentPage, Flag, Flagged, Pair, Session, Store

STEP_MARKS: Final = 5_000  # read in one go, in about 20 ms
STEPS_MAX: Final = 200  # a bounded run of a million marks; what is left over comes next time
FLAGS_PER_UNIT: Final = 200  # so that no writer waits for long
UNDECIDED_MAX: Final = 1_000


@dataclass(slots=True)
class ScanReport:
    """What one run looked at, which pairs are new, and which entries it stopped."""

    looked: int = 0
    pairs: list[Pair] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    is_complete: bool = True


class ContentScan:
    """Looks for content duplicates in one ledger; needs no handlers."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        window: timedelta = WINDOW,
        actor: str = "content scan",
        step_marks: int = STEP_MARKS,
        steps_max: int = STEPS_MAX,
    ) -> None:
        self._store = store
        self._clock = clock
        self._window_ms = window // timedelta(milliseconds=1)
        self._actor = actor
        self._step_marks = step_marks
        self._steps_max = steps_max

    def run_once(self, stopping: Stopping = never) -> ScanReport:
        """Scans on from where the last run stopped, within the bounds; from a thread."""
        report = ScanReport()
        session = self._store.connect()
        try:
            self._look_again(session, report)
            for _ in range(self._steps_max):
                if stopping() or self._step(session, report):
                    break
            else:
                report.is_complete = False
        except StoreBusy:
            report.is_complete = False  # others keep the ledger busy; nothing is lost by coming later
        finally:
            session.close()
        return report

    def _look_again(self, session: Session, report: ScanReport) -> None:
        with self._store.look() as reader:
            pairs = reader.undecided(UNDECIDED_MAX)
        self._flag(session, pairs, report, None)

    def _step(self, session: Session, report: ScanReport) -> bool:
        """Looks at some more marks; True if these were the last."""
        with self._store.look() as reader:
            page = reader.contents_after(reader.scanned(), self._step_marks, self._window_ms)
        report.looked += page.looked
        if page.looked:
            self._flag(session, list(page.pairs), report, page)
        return page.looked < self._step_marks

    def _flag(
        self, session: Session, pairs: list[Pair], report: ScanReport, page: ContentPage | None
    ) -> None:
        """Flags in short units; the place is kept with the last, so that a crash never skips any."""
        for start in range(0, max(1, len(pairs)), FLAGS_PER_UNIT):
            part = pairs[start : start + FLAGS_PER_UNIT]
            is_last = start + FLAGS_PER_UNIT >= len(pairs)
            if not part and page is None:
                return
            with session.unit():
                flagged = session.flag(self._flags(part))
                if is_last and page is not None:
                    session.note_scanned(page.position)
            report.pairs += [pair for pair, done in zip(part, flagged, strict=True) if done.is_new]
            report.stopped += [entry for done in flagged for entry in done.stopped]
            _tell(part, flagged)

    def _flags(self, pairs: list[Pair]) -> list[Flag]:
        now_ms = self._clock.wall_ms()
        return [Flag(pair.entry_id, pair.other_id, now_ms, self._actor) for pair in pairs]


def _tell(pairs: list[Pair], flagged: list[Flagged]) -> None:
    """A line for each entry that was put in quarantine; of many, so many and how many more."""
    stopped = [(entry, pair) for pair, done in zip(pairs, flagged, strict=True) for entry in done.stopped]
    for entry, pair in stopped[:LINES_MAX]:
        other = pair.other_id if entry == pair.entry_id else pair.entry_id
        log.warning("quarantine of entry %d: reason=content_duplicate of entry %d", entry, other)
    if len(stopped) > LINES_MAX:
        log.warning("quarantine of %d entries more: reason=content_duplicate", len(stopped) - LINES_MAX)
