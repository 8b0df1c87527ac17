"""Counters and repeats on the embedded ledger. Mixed into the session."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from oncegate.store import Observations, Repeat, ResourceSeen, Tally, Waiting
from oncegate.stores.shared.observations import SQLITE_KIND as KIND
from oncegate.stores.shared.observations import SQLITE_TIME_TO_DECIDE as TIME_TO_DECIDE
from oncegate.stores.shared.observations import joined, repeat_of, summed, waiting_of
from oncegate.stores.shared.second_resources import resources_of
from oncegate.stores.sqlite.names import Names
from oncegate.stores.sqlite.open_entries import open_entries

_ADD: Final = (
    "INSERT INTO oncegate_tally (minute, surface, what, count, total) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (minute, surface, what)"
    " DO UPDATE SET count = count + excluded.count, total = total + excluded.total"
)
_REPEAT: Final = (
    "INSERT INTO oncegate_repeat (entry, class, first_at, last_at, times, evidence)"
    " SELECT id, ?, ?, ?, ?, ? FROM oncegate_entry WHERE id = ?"
    " ON CONFLICT (entry, class) DO UPDATE SET first_at = min(first_at, excluded.first_at),"
    " evidence = CASE WHEN excluded.last_at >= last_at THEN excluded.evidence ELSE evidence END,"
    " last_at = max(last_at, excluded.last_at), times = times + excluded.times"
)
_TALLIES: Final = (
    "SELECT text, minute, what, count, total FROM oncegate_tally JOIN oncegate_name ON id = surface"
    " WHERE minute >= ? AND minute < ? AND (? IS NULL OR text = ?) ORDER BY minute, text, what"
)
_SUMS: Final = (
    "SELECT text, ?, what, sum(count), sum(total) FROM oncegate_tally JOIN oncegate_name ON id = surface"
    " WHERE minute >= ? AND minute < ? GROUP BY text, what ORDER BY text, what"
)
_OPEN_COLUMNS: Final = (
    "surface, state, reason, lease_until, first_reserved, settled_at, received_at, attempt"
)
_WAITING: Final = f"""
SELECT name.text, state, {KIND} AS kind, {TIME_TO_DECIDE} AS within, count(*),
       min(CASE state WHEN 1 THEN first_reserved ELSE lease_until END),
       min(coalesce(settled_at, received_at)), sum(state = 1 AND lease_until <= ?1),
       max(CASE WHEN state = 4 AND attempt > 0 THEN max(0, settled_at - received_at) ELSE 0 END)
FROM ({open_entries(_OPEN_COLUMNS, "(?2 IS NULL OR (state = 1) = ?2)")})
JOIN oncegate_name AS name ON name.id = surface GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
"""
_COLUMNS: Final = "entry, class, oncegate_repeat.first_at, last_at, times, evidence"
_REPEATS: Final = f"SELECT {_COLUMNS} FROM oncegate_repeat WHERE entry = ? ORDER BY first_at, class"
_BUGS: Final = (
    f"SELECT {_COLUMNS} FROM oncegate_repeat JOIN oncegate_entry ON oncegate_entry.id = entry"
    " JOIN oncegate_name AS name ON name.id = surface"
    " WHERE class IN (4, 5, 6, 7) AND (? IS NULL OR name.text = ?) ORDER BY last_at DESC LIMIT ?"
)
_FORGET: Final = (
    "DELETE FROM oncegate_tally WHERE (minute, surface, what) IN"
    " (SELECT minute, surface, what FROM oncegate_tally WHERE minute < ? LIMIT ?)"
)
_OLD: Final = (
    "SELECT minute, surface, what, count, total FROM oncegate_tally"
    " WHERE minute < ? AND minute % 60 <> 0 LIMIT ?"
)
_REMOVE: Final = "DELETE FROM oncegate_tally WHERE minute = ? AND surface = ? AND what = ?"


class SqliteTallies:
    """Observe, tallies, repeats, trim."""

    _connection: sqlite3.Connection
    _names: Names

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def _see_resources(self, seen: Sequence[ResourceSeen]) -> None:
        raise NotImplementedError

    def observe(self, seen: Sequence[Observations]) -> None:
        """Adds to the counters and to the entries' repeats."""
        number = self._names.number
        rows = [
            (minute, number(surface), what, count, total)
            for (minute, surface, what), (count, total) in summed(seen).items()
        ]
        self._connection.executemany(_ADD, rows)
        repeats = [
            (r.kind.value, r.first_at_ms, r.last_at_ms, r.times, r.evidence, r.entry_id)
            for r in joined(seen)
        ]
        self._connection.executemany(_REPEAT, repeats)
        self._see_resources(resources_of(seen))

    def tallies(self, from_minute: int, to_minute: int, surface: str | None = None) -> list[Tally]:
        """Reads counters of some minutes."""
        rows = self._connection.execute(_TALLIES, (from_minute, to_minute, surface, surface))
        return [Tally(*row) for row in rows.fetchall()]

    def tally_sums(self, from_minute: int, to_minute: int) -> list[Tally]:
        """Adds up counters of some minutes."""
        rows = self._connection.execute(_SUMS, (from_minute, from_minute, to_minute))
        return [Tally(*row) for row in rows.fetchall()]

    def waiting(self, in_flight: bool | None = None) -> list[Waiting]:
        """Counts what is open."""
        rows = self._connection.execute(_WAITING, (self.now_ticks(), in_flight))
        return [waiting_of(row) for row in rows.fetchall()]

    def waiting_mark(self) -> bytes | None:
        """Rows of a file are near: counting them is as quick as finding out whether they are the same."""
        return None

    def clock_ahead_ms(self, wall_ms: int) -> int | None:
        """A file has no clock of its own."""
        return None

    def repeats(self, entry_id: int) -> list[Repeat]:
        """Reads an entry's repeats."""
        return [repeat_of(row) for row in self._connection.execute(_REPEATS, (entry_id,)).fetchall()]

    def sender_bugs(self, surface: str | None, limit: int) -> list[Repeat]:
        """Reads what points at a sender."""
        rows = self._connection.execute(_BUGS, (surface, surface, limit)).fetchall()
        return [repeat_of(row) for row in rows]

    def trim_tallies(self, fold_before: int, forget_before: int, limit: int) -> int:
        """Forgets what is oldest and folds what is old."""
        forgotten = self._connection.execute(_FORGET, (forget_before, limit)).rowcount
        old = self._connection.execute(_OLD, (fold_before, limit)).fetchall()
        self._connection.executemany(_REMOVE, [row[:3] for row in old])
        self._connection.executemany(_ADD, [(row[0] // 60 * 60, *row[1:]) for row in old])
        return forgotten + len(old)
