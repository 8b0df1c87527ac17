"""Compares the contract's realtime calls with the confirmations of their windows, as the ledger has them.

A job: each run reads what is new, keeps sums by window in memory, and posts for each partner how many
windows differ, which the signal `drift` reads. It only reads events; it changes and stops none.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import msgspec

from oncegate.clock import Clock
from oncegate.maintenance.schedule import Stopping, never
from oncegate.model.drift import Drift, DriftFields, Side, compare, read_call
from oncegate.store import Entry, EntryFilter, Posting, Session, Store
from oncegate.store.notices import DRIFT, DRIFT_KEPT_MS, DriftWord

HORIZON: Final = timedelta(hours=48)  # windows that had a call within this
SETTLED_AFTER: Final = timedelta(minutes=15)  # realtime is best effort: a window is judged when it is quiet
EDGE: Final = timedelta(hours=6)  # windows that began so soon after the horizon are not judged
UNCONFIRMED_AFTER: Final = timedelta(hours=24)
ENTRIES_MAX: Final = 50_000  # of each surface, looked at in one run; the next one goes on
WINDOWS_MAX: Final = 20_000
PAGE: Final = 500
ALL_PARTNERS: Final = "all partners"  # where a comparison that is behind says so
OVERLAP: Final = 1_000  # numbers before the newest that are looked at again: commits overtake each other

Place = tuple[str, str, str]  # tenant, partner, window


@dataclass(slots=True)
class DriftReport:
    """Windows that were judged, and those that differ, the latest first."""

    looked: int = 0
    judged: int = 0
    drifts: list[Drift] = field(default_factory=list)
    is_complete: bool = True


class _Reader:
    """How far one surface was read: back to the horizon at first, then what is new, in passes.

    A pass goes from the newest entry down to where the one before began. One that is longer than a run may
    be goes on in the next run, so that nothing counts twice and nothing is left out.
    """

    def __init__(self) -> None:
        self.before: int | None = None  # where a pass that was cut goes on, towards older entries
        self.above: int | None = None  # where it ends; None at the horizon
        self.is_caught_up = False
        self._newest = 0
        self._seen: set[int] = set()

    def is_new(self, entry_id: int) -> bool:
        """Whether an entry was not read before."""
        if entry_id in self._seen:
            return False
        self._newest = max(self._newest, entry_id)
        if entry_id > self._newest - OVERLAP:
            self._seen.add(entry_id)
        return True

    def ends(self) -> None:
        """A pass has ended; only what may still be overtaken is remembered."""
        self.above, self.before = max(0, self._newest - OVERLAP), None
        self._seen = {number for number in self._seen if number > self.above}


class DriftScan:
    """Looks at one ledger; `realtime` and `confirmed` are the names of the surfaces."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        realtime: str,
        confirmed: str,
        fields: DriftFields | None = None,
        horizon: timedelta = HORIZON,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        self._store, self._clock = store, clock
        self._surfaces = (realtime, confirmed)
        self._fields = fields or DriftFields()
        self._horizon_ms = horizon // timedelta(milliseconds=1)
        self._entries_max = entries_max
        self._words: dict[str, bytes] = {}  # of partners that have a difference, as it was last said
        self._was_behind = False
        self._sides: tuple[dict[Place, Side], dict[Place, Side]] = ({}, {})
        self._left_out_at_ms = 0  # when a call came last whose window found no room
        self._readers = tuple(_Reader() for _ in self._surfaces)
        self._floor_ms = clock.wall_ms() - self._horizon_ms

    def run_once(self, stopping: Stopping = never) -> DriftReport:
        """Reads what is new and says what differs; from a thread."""
        report = self.look(stopping)
        with closing(self._store.connect()) as session, session.unit():
            for posting in self._postings(report):
                session.post(posting)
        return report

    def look(self, stopping: Stopping = never) -> DriftReport:
        """Reads what is new and compares; writes nothing. Judges nothing while it has not caught up."""
        report = DriftReport()
        with self._store.look() as session:
            for place, reader in enumerate(self._readers):
                report.looked += self._catch_up(session, place, reader, stopping)
        self._forget()
        is_whole = self._left_out_at_ms < self._clock.wall_ms() - self._horizon_ms
        report.is_complete = is_whole and all(reader.is_caught_up for reader in self._readers)
        if report.is_complete:
            self._judge(report)
        return report

    def _catch_up(self, session: Session, place: int, reader: _Reader, stopping: Stopping) -> int:
        """Goes on with a pass that was cut, then reads what is newer; returns how many were looked at."""
        was_cut = reader.before is not None
        looked = self._read(session, place, reader, self._entries_max, stopping)
        if was_cut and reader.before is None:
            looked += self._read(session, place, reader, self._entries_max - looked, stopping)
        reader.is_caught_up = reader.before is None
        return looked

    def _read(self, session: Session, place: int, reader: _Reader, room: int, stopping: Stopping) -> int:
        surface, after_ms = self._surfaces[place], self._clock.wall_ms() - self._horizon_ms
        wanted = EntryFilter(surface=surface, received_after_ms=after_ms, above_id=reader.above)
        looked = 0
        while page := session.entries(wanted, reader.before, PAGE):
            for entry in page:
                if reader.is_new(entry.entry_id):
                    self._add(session, place, entry)
            reader.before, looked = page[-1].entry_id, looked + len(page)
            if looked >= room or stopping():
                return looked
        reader.ends()
        return looked

    def _add(self, session: Session, place: int, entry: Entry) -> None:
        detail = session.detail(entry.entry_id)
        event: Any = None if detail is None or detail.body is None else msgspec.json.decode(detail.body)
        reading = read_call(event.get("payload"), self._fields) if isinstance(event, dict) else None
        sides = self._sides[place]
        if reading is None:
            return
        window = (entry.tenant, str(event.get("partner_id")), reading.window)
        if window in sides or len(sides) < WINDOWS_MAX:
            sides.setdefault(window, Side()).add(reading, entry.received_at_ms)
        else:
            self._left_out_at_ms = max(self._left_out_at_ms, entry.received_at_ms)

    def _forget(self) -> None:
        """Windows in which nothing has come for long."""
        since = self._clock.wall_ms() - self._horizon_ms
        for sides in self._sides:
            for window in [window for window, side in sides.items() if side.last_at_ms < since]:
                del sides[window]

    def _judge(self, report: DriftReport) -> None:
        realtime, confirmed = self._sides
        now_ms = self._clock.wall_ms()
        for window in {*realtime, *confirmed}:
            one, other = realtime.get(window) or Side(), confirmed.get(window)
            quiet_ms = now_ms - max(one.last_at_ms, 0 if other is None else other.last_at_ms)
            needed = UNCONFIRMED_AFTER if other is None else SETTLED_AFTER
            if quiet_ms < needed // timedelta(milliseconds=1) or self._is_cut(one, other):
                continue
            report.judged += 1
            drift = compare(window, one, other)
            if drift is not None:
                report.drifts.append(drift)
        report.drifts.sort(key=lambda drift: (-drift.last_at_ms, drift.partner, drift.window))

    def _is_cut(self, *sides: Side | None) -> bool:
        """Whether a window may have begun before what was read."""
        firsts = [side.first_at_ms for side in sides if side is not None and side.calls]
        return min(firsts) < self._floor_ms + EDGE // timedelta(milliseconds=1)

    def _postings(self, report: DriftReport) -> list[Posting]:
        """One word for each partner; one that has none any more says so.

        A comparison that is behind says that too, and what it found last stands until it has caught up.
        """
        at_ms, is_behind = self._clock.wall_ms(), not report.is_complete
        said = [] if is_behind else self._say(report)
        said += [(name, word, DRIFT_KEPT_MS) for name, word in sorted(self._words.items())]
        if is_behind or self._was_behind:
            word = msgspec.json.encode(DriftWord(0, (), is_behind=True))
            said.append((ALL_PARTNERS, word, DRIFT_KEPT_MS if is_behind else 0))
        self._was_behind = is_behind
        return [Posting(DRIFT, name[:200], DRIFT, word, at_ms, kept_ms) for name, word, kept_ms in said]

    def _say(self, report: DriftReport) -> list[tuple[str, bytes, int]]:
        """Keeps what is reported of each partner; returns the reports of those that are right again."""
        found: dict[str, list[Drift]] = {}
        for drift in report.drifts:
            found.setdefault(f"{drift.tenant}/{drift.partner}", []).append(drift)
        right = sorted(self._words.keys() - found.keys())
        self._words = {name: _word(drifts) for name, drifts in found.items()}
        return [(name, _word([]), DRIFT_KEPT_MS) for name in right]


def _word(drifts: list[Drift]) -> bytes:
    windows = tuple(drift.window for drift in drifts[:3])
    return msgspec.json.encode(DriftWord(len(drifts), windows))
