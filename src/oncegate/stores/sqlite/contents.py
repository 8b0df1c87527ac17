"""Marks of content and pairs of equal ones on the embedded ledger. Mixed into the session."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from oncegate.model.content import WINDOW
from oncegate.model.states import State
from oncegate.store import (
    ContentPage,
    Dismissal,
    Doubled,
    Duplicate,
    Entry,
    Flag,
    Flagged,
    LogKind,
    Pair,
    Unscanned,
)
from oncegate.stores.shared.duplicates import note_for, reason_for
from oncegate.stores.sqlite.names import Names

_NEXT: Final = """
SELECT found.entry, found.earlier, later.state, abs(later.received_at - before.received_at)
FROM (
    SELECT content.entry AS entry, (
        SELECT equal.entry FROM oncegate_content AS equal
        WHERE equal.hash = content.hash AND equal.entry < content.entry
          AND (SELECT state FROM oncegate_entry WHERE id = equal.entry) <> 3
        ORDER BY equal.entry DESC LIMIT 1
    ) AS earlier
    FROM oncegate_content AS content WHERE content.entry > ? ORDER BY content.entry LIMIT ?
) AS found
LEFT JOIN oncegate_entry AS later ON later.id = found.entry AND found.earlier IS NOT NULL
LEFT JOIN oncegate_entry AS before ON before.id = found.earlier
ORDER BY found.entry
"""
_FLAG: Final = (
    "INSERT INTO oncegate_duplicate (entry, other, flagged_at, undecided) VALUES (?, ?, ?, 1)"
    " ON CONFLICT (entry) DO NOTHING"
)
_UNDECIDED: Final = "SELECT 1 FROM oncegate_duplicate WHERE entry = ? AND other = ? AND undecided = 1"
_DECIDE: Final = "UPDATE oncegate_duplicate SET undecided = ? WHERE entry = ?"
_STATE: Final = "SELECT state, reason FROM oncegate_entry WHERE id = ?"
_STOP: Final = (
    "UPDATE oncegate_entry SET state = 7, settled_at = ?, reason = ?, token = NULL"
    " WHERE id = ? AND state IN (4, 6)"
)
_SCANNED: Final = "SELECT value FROM oncegate_meta WHERE name = 'scanned'"
_NOTE_SCANNED: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES ('scanned', ?)"
    " ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)"
)
_OPEN_PAIRS: Final = (
    "SELECT entry, other FROM oncegate_duplicate WHERE undecided = 1 ORDER BY entry LIMIT ?"
)
_WINDOW_MS: Final = WINDOW // timedelta(milliseconds=1)
_RAN_WITH: Final = f"""
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND equal.entry < mine.entry
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= {_WINDOW_MS})
ORDER BY equal.entry DESC LIMIT 1
"""
_PAIRS: Final = f"""
SELECT pair.entry, pair.other, coalesce(content.target, ''), content.compensation, pair.flagged_at,
       pair.dismissed_at, pair.dismissed_by, pair.note,
       CASE WHEN later.id IS NOT NULL THEN ({_RAN_WITH}) END
FROM oncegate_duplicate AS pair LEFT JOIN oncegate_content AS content ON content.entry = pair.entry
LEFT JOIN oncegate_entry AS later ON later.id = pair.entry AND later.state = 2
WHERE """
_LIST: Final = (
    f"{_PAIRS} pair.entry < ? AND (? OR pair.dismissed_at IS NULL) ORDER BY pair.entry DESC LIMIT ?"
)
# Both ran, or not asked for; of a surface, or of all. Each is looked up for open pairs only.
_OPEN: Final = f"""{_PAIRS} pair.dismissed_at IS NULL AND pair.entry > ?
AND (NOT ? OR (later.id IS NOT NULL AND EXISTS ({_RAN_WITH})))
AND (? IS NULL OR ? = (SELECT name.text FROM oncegate_entry AS half
                      JOIN oncegate_name AS name ON name.id = half.surface WHERE half.id = pair.entry))
ORDER BY pair.entry LIMIT ?"""
_OPEN_NUMBERS: Final = """
SELECT entry, other FROM oncegate_duplicate WHERE dismissed_at IS NULL AND entry > ?
ORDER BY entry LIMIT ?
"""
_DISMISS: Final = (
    "UPDATE oncegate_duplicate SET dismissed_at = ?, dismissed_by = ?, note = ?, undecided = 0"
    " WHERE entry = ? AND dismissed_at IS NULL"
)
# Begun from the open pairs, which are few; CROSS JOIN keeps it from walking through all entries.
_DOUBLED: Final = f"""
SELECT name.text, count(*), min(pair.flagged_at)
FROM oncegate_duplicate AS pair INDEXED BY oncegate_duplicate_open
CROSS JOIN oncegate_entry AS later ON later.id = pair.entry AND later.state = 2
JOIN oncegate_name AS name ON name.id = later.surface
WHERE pair.dismissed_at IS NULL AND EXISTS ({_RAN_WITH}) GROUP BY name.text ORDER BY name.text
"""
_UNSCANNED: Final = """
SELECT entry.received_at FROM oncegate_content AS content
JOIN oncegate_entry AS entry ON entry.id = content.entry
WHERE content.entry > ? ORDER BY content.entry LIMIT 1
"""
_LAST: Final = 2**63 - 1


class SqliteContents:
    """Contents after, scanned, flag, undecided, duplicates, open duplicates, dismiss."""

    _connection: sqlite3.Connection
    _names: Names

    def _log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        raise NotImplementedError

    def _entry_numbered(self, number: int) -> Entry | None:
        raise NotImplementedError

    def contents_after(self, position: int, limit: int, window_ms: int) -> ContentPage:
        """Looks at the next marks."""
        rows = self._connection.execute(_NEXT, (position, limit)).fetchall()
        pairs = tuple(
            Pair(entry, earlier)
            for entry, earlier, state, apart in rows
            if earlier is not None and state not in (None, State.FAILED.value) and apart <= window_ms
        )
        return ContentPage(pairs, len(rows), rows[-1][0] if rows else position)

    def scanned(self) -> int:
        """Where the last scan stopped."""
        row = self._connection.execute(_SCANNED).fetchone()
        return 0 if row is None else int(row[0])

    def unscanned(self) -> Unscanned | None:
        """The next mark to look at."""
        row = self._connection.execute(_UNSCANNED, (self.scanned(),)).fetchone()
        return None if row is None else Unscanned(row[0])

    def note_scanned(self, position: int) -> None:
        """Keeps where a scan stopped."""
        self._connection.execute(_NOTE_SCANNED, (position,))

    def flag(self, flags: Sequence[Flag]) -> list[Flagged]:
        """Flags pairs one by one."""
        return [self._flag(item) for item in flags]

    def _flag(self, item: Flag) -> Flagged:
        is_new = self._connection.execute(_FLAG, (item.entry_id, item.other_id, item.at_ms)).rowcount == 1
        if is_new:
            self._log(item.entry_id, LogKind.DUPLICATE, item.at_ms, item.actor, note_for(item.other_id))
            self._log(item.other_id, LogKind.DUPLICATE, item.at_ms, item.actor, note_for(item.entry_id))
        elif self._connection.execute(_UNDECIDED, (item.entry_id, item.other_id)).fetchone() is None:
            return Flagged(is_new=False)
        members = ((item.entry_id, item.other_id), (item.other_id, item.entry_id))
        states = [self._stop(entry, other, item) for entry, other in members]
        self._connection.execute(_DECIDE, (State.IN_FLIGHT in states, item.entry_id))
        stopped = tuple(
            entry for (entry, _), state in zip(members, states, strict=True) if state is State.QUARANTINED
        )
        return Flagged(is_new, stopped)

    def _stop(self, entry: int, other: int, item: Flag) -> State | None:
        """Stops an entry if it may still run: QUARANTINED if so, IN_FLIGHT if that is why not."""
        row = self._connection.execute(_STATE, (entry,)).fetchone()
        if row is None:
            return None
        state, reason = State(row[0]), reason_for(other, State(row[0]).label, row[1])
        if self._connection.execute(_STOP, (item.at_ms, reason, entry)).rowcount != 1:
            return state if state is State.IN_FLIGHT else None
        self._log(entry, LogKind.QUARANTINED, item.at_ms, item.actor, reason)
        return State.QUARANTINED

    def undecided(self, limit: int) -> list[Pair]:
        """Pairs that had an entry in flight."""
        return [Pair(entry, other) for entry, other in self._connection.execute(_OPEN_PAIRS, (limit,))]

    def duplicates(self, before_id: int | None, limit: int, *, dismissed: bool) -> list[Duplicate]:
        """Lists pairs, newest first."""
        parameters = (before_id or _LAST, dismissed, limit)
        return [self._duplicate(row) for row in self._connection.execute(_LIST, parameters).fetchall()]

    def open_duplicates(
        self, after_id: int, limit: int, *, ran: bool = False, surface: str | None = None
    ) -> list[Duplicate]:
        """Lists pairs that wait for a person, oldest first."""
        parameters = (after_id, ran, surface, surface, limit)
        return [self._duplicate(row) for row in self._connection.execute(_OPEN, parameters).fetchall()]

    def open_pairs(self, after_id: int, limit: int) -> list[Pair]:
        """The numbers of pairs that wait for a person."""
        return [Pair(*row) for row in self._connection.execute(_OPEN_NUMBERS, (after_id, limit))]

    def _duplicate(self, row: tuple[Any, ...]) -> Duplicate:
        entry, other, target, compensation, flagged_at, dismissed_at, by, note, ran = row
        return Duplicate(
            Pair(entry, other), self._entry_numbered(entry), self._entry_numbered(other), target,
            compensation, flagged_at, dismissed_at, None if by is None else self._names.text(by), note,
            None if ran is None else self._entry_numbered(ran),
        )  # fmt: skip

    def doubled(self) -> list[Doubled]:
        """Counts open pairs whose change ran twice."""
        return [Doubled(*row) for row in self._connection.execute(_DOUBLED)]

    def dismiss(self, dismissal: Dismissal) -> bool:
        """Notes a person's word."""
        item, actor = dismissal, self._names.number(dismissal.actor)
        cursor = self._connection.execute(_DISMISS, (item.at_ms, actor, item.note, item.entry_id))
        if cursor.rowcount != 1:
            return False
        self._log(item.entry_id, LogKind.DISMISSED, item.at_ms, item.actor, item.note)
        return True
