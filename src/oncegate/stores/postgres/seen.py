"""What processes have seen, on PostgreSQL. Mixed into the session.

Of two processes that write one content at once the second waits for the first and learns of it: the row
itself says what it said before. Rows are written in one order, so that there is no deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

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
from oncegate.stores.postgres.arrays import bigint_array, integer_array
from oncegate.stores.postgres.names import Names

# `excluded.before_at` is for how long the content is worth knowing; a new row does not keep it.
_MEET: Final = """
WITH batch AS MATERIALIZED (
    SELECT * FROM unnest(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[])
        AS given (surface, content, entry, at, times, within)
),
kept AS (
    INSERT INTO oncegate_seen AS known (surface, content, entry, at, shared_by, before, before_at)
    SELECT surface, content, entry, at, times, NULL, within FROM batch ORDER BY surface, content
    ON CONFLICT (surface, content) DO UPDATE
    SET entry = excluded.entry, at = excluded.at,
        shared_by = excluded.shared_by
            + CASE WHEN abs(excluded.at - known.at) <= excluded.before_at THEN known.shared_by ELSE 0 END,
        before = CASE WHEN abs(excluded.at - known.at) <= excluded.before_at THEN known.entry END,
        before_at = known.at
    RETURNING surface, content, before, before_at, shared_by
)
SELECT surface, content, before, before_at, shared_by FROM kept WHERE before IS NOT NULL
"""
_RECENT: Final = f"""
SELECT surface, at, entry, first_at, fresh FROM unnest(%s::int[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT surface, at, entry, first_at, fresh FROM oncegate_seen_repeat
    WHERE surface = wanted.id AND at BETWEEN %s AND %s
    ORDER BY at DESC, entry DESC LIMIT {REPEATS_KEPT_MAX}
) AS recent ORDER BY at, entry
"""
_REPEAT: Final = """
INSERT INTO oncegate_seen_repeat (surface, at, entry, first_at, fresh)
SELECT * FROM unnest(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[])
    AS given (surface, at, entry, first_at, fresh) ORDER BY surface, at, entry
ON CONFLICT (surface, at, entry) DO NOTHING
"""
# Rows that somebody else is writing or removing are left: nobody waits here.
_TRIM: Final = """
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table}
    WHERE {age} LIMIT {removed} FOR UPDATE SKIP LOCKED))
"""
_BEYOND: Final = (
    "surface = %s AND at < (SELECT at FROM {table} WHERE surface = %s"
    " ORDER BY at DESC LIMIT 1 OFFSET {kept})"
)
_TABLES: Final = (("oncegate_seen", SEEN_ROWS_MAX - 1), ("oncegate_seen_repeat", REPEATS_KEPT_MAX - 1))
_OLD_ROWS: Final = tuple(
    _TRIM.format(table=table, age="at NOT BETWEEN %s AND %s", removed=TRIMMED_MAX) for table, _ in _TABLES
)
_ROWS_BEYOND: Final = tuple(
    _TRIM.format(table=table, age=_BEYOND.format(table=table, kept=kept), removed=TRIMMED_MAX)
    for table, kept in _TABLES
)


class PostgresSeen:
    """Meet."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def meet(self, seen: Seen) -> Met:
        """Writes all contents with one statement, which tells what the rows said before."""
        if not seen.surfaces:
            return Met()
        numbers = self._names.learn(seen.surfaces)
        self._begin()
        if seen.trims:
            self._trim(seen.now_ms, numbers.values())
        found = self._met(seen.contents, numbers) if seen.contents else {}
        before = tuple(found.get((numbers[one.surface], one.content)) for one in seen.contents)
        return Met(before, self._repeats(seen, numbers) if seen.repeats else ())

    def _met(
        self, contents: tuple[SeenContent, ...], numbers: dict[str, int]
    ) -> dict[tuple[int, int], Before]:
        times = {(numbers[one.surface], one.content): one.times for one in contents}
        rows = self._query(
            _MEET,
            (
                integer_array([numbers[one.surface] for one in contents]),
                bigint_array([one.content for one in contents]),
                bigint_array([one.entry_id for one in contents]),
                bigint_array([one.at_ms for one in contents]),
                integer_array([one.times for one in contents]),
                bigint_array([one.within_ms for one in contents]),
            ),
        )
        return {
            (surface, content): Before(entry, at, shared_by - times[surface, content])
            for surface, content, entry, at, shared_by in rows
        }

    def _repeats(self, seen: Seen, numbers: dict[str, int]) -> tuple[SeenRepeat, ...]:
        span = (seen.now_ms - SEEN_KEPT_MS, seen.now_ms + SEEN_KEPT_MS)
        surfaces = sorted({numbers[one.surface] for one in seen.repeats})
        texts = {number: text for text, number in numbers.items()}
        rows = self._query(_RECENT, (integer_array(surfaces), *span))
        self._query(
            _REPEAT,
            (
                integer_array([numbers[one.surface] for one in seen.repeats]),
                bigint_array([one.at_ms for one in seen.repeats]),
                bigint_array([one.entry_id for one in seen.repeats]),
                bigint_array([one.first_at_ms for one in seen.repeats]),
                integer_array([one.fresh for one in seen.repeats]),
            ),
        )
        return tuple(SeenRepeat(texts[row[0]], *row[1:]) for row in rows)

    def _trim(self, now_ms: int, surfaces: Iterable[int]) -> None:
        for statement in _OLD_ROWS:
            self._query(statement, (now_ms - SEEN_KEPT_MS, now_ms + SEEN_KEPT_MS))
        for surface in surfaces:
            for statement in _ROWS_BEYOND:
                self._query(statement, (surface, surface))
