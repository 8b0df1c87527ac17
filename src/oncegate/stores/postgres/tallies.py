"""Counters and repeats on PostgreSQL. Mixed into the session.

Many processes add to the same few rows: each statement takes them in one order, so that two never wait for
each other in a circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.store import Observations, Repeat, ResourceSeen, Tally, Waiting
from oncegate.stores.postgres.arrays import bigint_array, integer_array, text_array
from oncegate.stores.postgres.names import Names
from oncegate.stores.shared.observations import POSTGRES_KIND as KIND
from oncegate.stores.shared.observations import POSTGRES_TIME_TO_DECIDE as TIME_TO_DECIDE
from oncegate.stores.shared.observations import joined, repeat_of, summed, waiting_of
from oncegate.stores.shared.second_resources import resources_of

_ADD: Final = """
INSERT INTO oncegate_tally AS tally (minute, surface, what, count, total)
SELECT minute, surface, what, count, total
FROM unnest(%s::bigint[], %s::int[], %s::int[], %s::bigint[], %s::bigint[])
     AS batch (minute, surface, what, count, total)
ORDER BY minute, surface, what
ON CONFLICT (minute, surface, what)
DO UPDATE SET count = tally.count + excluded.count, total = tally.total + excluded.total
"""
_REPEAT: Final = """
INSERT INTO oncegate_repeat AS known (entry, class, first_at, last_at, times, evidence)
SELECT batch.entry, batch.class, batch.first_at, batch.last_at, batch.times, batch.evidence
FROM unnest(%s::bigint[], %s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[])
     AS batch (entry, class, first_at, last_at, times, evidence)
JOIN oncegate_entry AS target ON target.id = batch.entry
ORDER BY batch.entry, batch.class
ON CONFLICT (entry, class) DO UPDATE
SET first_at = least(known.first_at, excluded.first_at),
    last_at = greatest(known.last_at, excluded.last_at),
    times = known.times + excluded.times,
    evidence = CASE WHEN excluded.last_at >= known.last_at THEN excluded.evidence ELSE known.evidence END
"""
_TALLIES: Final = """
SELECT name.text, minute, what, count, total FROM oncegate_tally JOIN oncegate_name AS name ON id = surface
WHERE minute >= %s AND minute < %s AND (%s::text IS NULL OR name.text = %s::text)
ORDER BY minute, name.text, what
"""
_SUMS: Final = """
SELECT name.text, %s::bigint, what, count, total FROM (
    SELECT surface, what, sum(count)::bigint AS count, sum(total)::bigint AS total FROM oncegate_tally
    WHERE minute >= %s AND minute < %s GROUP BY surface, what OFFSET 0
) AS sums JOIN oncegate_name AS name ON id = surface ORDER BY name.text, what
"""
_WAITING: Final = f"""
SELECT name.text, state, kind, within, count, oldest, oldest_at, expired, tried FROM (
    SELECT entry.surface, entry.state, {KIND} AS kind, {TIME_TO_DECIDE} AS within, count(*) AS count,
           min(CASE entry.state WHEN 1 THEN open.first_reserved ELSE open.lease_until END) AS oldest,
           min(coalesce(entry.settled_at, entry.received_at)) AS oldest_at,
           count(*) FILTER (WHERE entry.state = 1 AND open.lease_until <= %s) AS expired,
           max(CASE WHEN entry.state = 4 AND entry.attempt > 0
                    THEN greatest(0, entry.settled_at - entry.received_at) ELSE 0 END) AS tried
    FROM oncegate_open AS open
    CROSS JOIN LATERAL (SELECT * FROM oncegate_entry AS one WHERE one.id = open.entry OFFSET 0) AS entry
    WHERE entry.state NOT IN (2, 3) AND (%s::boolean IS NULL OR (open.state = 1) = %s::boolean)
    GROUP BY 1, 2, 3, 4 OFFSET 0
) AS counted JOIN oncegate_name AS name ON name.id = surface ORDER BY 1, 2, 3, 4
"""
# Whatever changes an entry that waits writes its row here anew, and so gives it another transaction.
_MARK: Final = """
SELECT count(*), bit_xor(hash_record_extended(ROW(entry, state, lease_until, xmin), 0))
FROM oncegate_open WHERE state <> 1
"""
_AHEAD: Final = "SELECT %s::bigint - (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_COLUMNS: Final = "known.entry, known.class, known.first_at, known.last_at, known.times, known.evidence"
_REPEATS: Final = (
    f"SELECT {_COLUMNS} FROM oncegate_repeat AS known WHERE entry = %s ORDER BY first_at, class"
)
_BUGS: Final = f"""
SELECT {_COLUMNS} FROM oncegate_repeat AS known
JOIN oncegate_entry AS entry ON entry.id = known.entry JOIN oncegate_name AS name ON name.id = entry.surface
WHERE known.class IN (4, 5, 6, 7) AND (%s::text IS NULL OR name.text = %s::text)
ORDER BY known.last_at DESC LIMIT %s
"""
_FORGET: Final = """
DELETE FROM oncegate_tally WHERE (minute, surface, what) IN (
    SELECT minute, surface, what FROM oncegate_tally WHERE minute < %s
    ORDER BY minute, surface, what LIMIT %s FOR UPDATE SKIP LOCKED
) RETURNING 1
"""
_FOLD: Final = """
WITH old AS (
    DELETE FROM oncegate_tally WHERE (minute, surface, what) IN (
        SELECT minute, surface, what FROM oncegate_tally WHERE minute < %s AND minute %% 60 <> 0
        ORDER BY minute, surface, what LIMIT %s FOR UPDATE SKIP LOCKED
    ) RETURNING minute, surface, what, count, total
),
folded AS (
    INSERT INTO oncegate_tally AS tally (minute, surface, what, count, total)
    SELECT minute / 60 * 60, surface, what, sum(count), sum(total) FROM old
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (minute, surface, what)
    DO UPDATE SET count = tally.count + excluded.count, total = tally.total + excluded.total
)
SELECT count(*) FROM old
"""


class PostgresTallies:
    """Observe, tallies, repeats, trim."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def _see_resources(self, seen: Sequence[ResourceSeen]) -> None:
        raise NotImplementedError

    def observe(self, seen: Sequence[Observations]) -> None:
        """Adds to the counters and to the entries' repeats, in one transaction."""
        sums, repeats = summed(seen), joined(seen)
        numbers = self._names.learn({surface for _, surface, _ in sums}) if sums else {}
        self._begin()
        if sums:
            columns = [(place[0], numbers[place[1]], place[2], *added) for place, added in sums.items()]
            minutes, surfaces, whats, counts, totals = zip(*columns, strict=True)
            self._query(
                _ADD,
                (
                    bigint_array(minutes), integer_array(surfaces), integer_array(whats),
                    bigint_array(counts), bigint_array(totals),
                ),
            )  # fmt: skip
        if repeats:
            self._add_repeats(repeats)
        self._see_resources(resources_of(seen))

    def _add_repeats(self, repeats: list[Repeat]) -> None:
        self._query(
            _REPEAT,
            (
                bigint_array([repeat.entry_id for repeat in repeats]),
                integer_array([repeat.kind.value for repeat in repeats]),
                bigint_array([repeat.first_at_ms for repeat in repeats]),
                bigint_array([repeat.last_at_ms for repeat in repeats]),
                bigint_array([repeat.times for repeat in repeats]),
                text_array([repeat.evidence for repeat in repeats]),
            ),
        )

    def tallies(self, from_minute: int, to_minute: int, surface: str | None = None) -> list[Tally]:
        """Reads counters of some minutes."""
        return [Tally(*row) for row in self._query(_TALLIES, (from_minute, to_minute, surface, surface))]

    def tally_sums(self, from_minute: int, to_minute: int) -> list[Tally]:
        """Adds up counters of some minutes."""
        return [Tally(*row) for row in self._query(_SUMS, (from_minute, from_minute, to_minute))]

    def waiting(self, in_flight: bool | None = None) -> list[Waiting]:
        """Counts what is open."""
        return [waiting_of(row) for row in self._query(_WAITING, (self.now_ticks(), in_flight, in_flight))]

    def waiting_mark(self) -> bytes | None:
        """Reads the small table alone, which has a row for each that waits."""
        ((count, mark),) = self._query(_MARK, ())
        return f"{count}:{mark}".encode()

    def clock_ahead_ms(self, wall_ms: int) -> int | None:
        """Compares a wall time with the server's."""
        ((ahead,),) = self._query(_AHEAD, (wall_ms,))
        return int(ahead)

    def repeats(self, entry_id: int) -> list[Repeat]:
        """Reads an entry's repeats."""
        rows: list[Any] = self._query(_REPEATS, (entry_id,))
        return [repeat_of(row) for row in rows]

    def sender_bugs(self, surface: str | None, limit: int) -> list[Repeat]:
        """Reads what points at a sender."""
        rows: list[Any] = self._query(_BUGS, (surface, surface, limit))
        return [repeat_of(row) for row in rows]

    def trim_tallies(self, fold_before: int, forget_before: int, limit: int) -> int:
        """Forgets what is oldest and folds what is old."""
        self._begin()
        forgotten = self._query(_FORGET, (forget_before, limit))
        ((folded,),) = self._query(_FOLD, (fold_before, limit))
        return len(forgotten) + int(folded)
