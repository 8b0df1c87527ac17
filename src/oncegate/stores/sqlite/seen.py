"""What processes have seen, on the embedded ledger. Mixed into the session; the ledger has one writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from oncegate.store.seen import (
    REPEATS_KEPT_MAX,
    SEEN_KEPT_MS,
    SEEN_ROWS_MAX,
    TRIMMED_MAX,
    Before,
    Met,
    Seen,
    SeenContent,
    SeenRepeat,
)
from oncegate.stores.sqlite.names import Names

_KNOWN: Final = (
    "WITH wanted (place, number) AS (VALUES {}) SELECT surface, content, entry, at, shared_by"
    " FROM wanted CROSS JOIN oncegate_seen ON surface = place AND content = number"
)
_ASKED_MAX: Final = 100  # contents in one question
_KEEP: Final = (
    "INSERT INTO oncegate_seen (surface, content, entry, at, shared_by) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (surface, content)"
    " DO UPDATE SET entry = excluded.entry, at = excluded.at, shared_by = excluded.shared_by"
)
_RECENT: Final = (
    "SELECT at, entry, first_at, fresh FROM oncegate_seen_repeat WHERE surface = ? AND at BETWEEN ? AND ?"
    f" ORDER BY at DESC, entry DESC LIMIT {REPEATS_KEPT_MAX}"
)
_REPEAT: Final = (
    "INSERT OR IGNORE INTO oncegate_seen_repeat (surface, at, entry, first_at, fresh)"
    " VALUES (?, ?, ?, ?, ?)"
)
_OLD: Final = (
    "DELETE FROM oncegate_seen WHERE (surface, content) IN"
    f" (SELECT surface, content FROM oncegate_seen WHERE at NOT BETWEEN ? AND ? LIMIT {TRIMMED_MAX})"
)
_OLD_REPEATS: Final = "DELETE FROM oncegate_seen_repeat WHERE at NOT BETWEEN ? AND ?"
_BEYOND: Final = (
    "DELETE FROM oncegate_seen WHERE (surface, content) IN (SELECT surface, content FROM oncegate_seen"
    " WHERE surface = ?1 AND at < (SELECT at FROM oncegate_seen WHERE surface = ?1"
    f" ORDER BY at DESC LIMIT 1 OFFSET {SEEN_ROWS_MAX - 1}) LIMIT {TRIMMED_MAX})"
)
_BEYOND_REPEATS: Final = (
    "DELETE FROM oncegate_seen_repeat WHERE surface = ?1 AND at < (SELECT at FROM oncegate_seen_repeat"
    f" WHERE surface = ?1 ORDER BY at DESC LIMIT 1 OFFSET {REPEATS_KEPT_MAX - 1})"
)


class SqliteSeen:
    """Meet."""

    _connection: sqlite3.Connection
    _names: Names

    def meet(self, seen: Seen) -> Met:
        """Looks each content up and writes it; no other process writes meanwhile."""
        if seen.trims:
            self._trim(seen)
        before = self._meet(seen.contents)
        surfaces = {repeat.surface for repeat in seen.repeats}
        recent = [one for surface in sorted(surfaces) for one in self._recent(surface, seen.now_ms)]
        rows = [
            (self._names.number(one.surface), one.at_ms, one.entry_id, one.first_at_ms, one.fresh)
            for one in seen.repeats
        ]
        self._connection.executemany(_REPEAT, rows)
        return Met(before, tuple(recent))

    def _meet(self, contents: Sequence[SeenContent]) -> tuple[Before | None, ...]:
        places = [(self._names.number(one.surface), one.content) for one in contents]
        known = dict(self._known(places))
        before = tuple(
            found if found is not None and abs(one.at_ms - found.at_ms) <= one.within_ms else None
            for one, found in zip(contents, map(known.get, places), strict=True)
        )
        kept = [
            (*place, one.entry_id, one.at_ms, one.times + (0 if found is None else found.shared_by))
            for place, one, found in zip(places, contents, before, strict=True)
        ]
        self._connection.executemany(_KEEP, kept)
        return before

    def _known(self, places: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], Before]]:
        for first in range(0, len(places), _ASKED_MAX):
            asked = places[first : first + _ASKED_MAX]
            sql = _KNOWN.format(", ".join(["(?, ?)"] * len(asked)))
            for surface, content, *row in self._connection.execute(sql, list(chain(*asked))).fetchall():
                yield (surface, content), Before(*row)

    def _recent(self, surface: str, now_ms: int) -> list[SeenRepeat]:
        span = (now_ms - SEEN_KEPT_MS, now_ms + SEEN_KEPT_MS)
        rows = self._connection.execute(_RECENT, (self._names.number(surface), *span)).fetchall()
        return [SeenRepeat(surface, *row) for row in reversed(rows)]

    def _trim(self, seen: Seen) -> None:
        span = (seen.now_ms - SEEN_KEPT_MS, seen.now_ms + SEEN_KEPT_MS)
        self._connection.execute(_OLD, span)
        self._connection.execute(_OLD_REPEATS, span)
        for surface in seen.surfaces:
            number = self._names.number(surface)
            self._connection.execute(_BEYOND, (number,))
            self._connection.execute(_BEYOND_REPEATS, (number,))
