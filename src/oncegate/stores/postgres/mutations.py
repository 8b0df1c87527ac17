"""Changes of users' objects on PostgreSQL. Mixed into the session.

A number is given when a row is written, and rows commit in another order. A mark therefore also names the
oldest transaction that may still commit; what it or a later one wrote is behind the mark.
"""

from __future__ import annotations

from typing import Any, Final

from oncegate.model.states import State
from oncegate.store.mutations import Mutated, mutated_of

IN_FLIGHT_MAX: Final = 100_000  # numbers below a mark that may still have been uncommitted then
_NOTE: Final = """
INSERT INTO oncegate_mutation (entry, name, target, nth, before, after, done, at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
_MARK: Final = """
SELECT coalesce(max(number), 0), pg_snapshot_xmin(pg_current_snapshot())::text FROM oncegate_mutation
"""
_SINCE: Final = """
SELECT number, entry, name, target, nth, before, after, done, at FROM oncegate_mutation
WHERE number > %s AND (number > %s OR xid >= %s::text::xid8) ORDER BY number LIMIT %s
"""
_TRIM: Final = """
DELETE FROM oncegate_mutation WHERE number IN (
    SELECT number FROM oncegate_mutation WHERE at < %s ORDER BY number LIMIT %s FOR UPDATE SKIP LOCKED
) RETURNING 1
"""
_COUNTS: Final = """
SELECT name.text, state, count(*) FROM oncegate_entry JOIN oncegate_name AS name ON name.id = surface
GROUP BY name.text, state ORDER BY name.text COLLATE "C", state
"""


class PostgresMutations:
    """Note, mark, read, trim, count."""

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def note_mutation(self, one: Mutated) -> None:
        """Adds a change."""
        self._begin()
        self._query(_NOTE, one.row)

    def mutation_mark(self) -> str:
        """The last number that is seen, and the oldest transaction that may still commit."""
        ((number, xid),) = self._query(_MARK, ())
        return f"{number}:{xid}"

    def mutations_since(self, mark: str, after: int, limit: int) -> list[Mutated]:
        """Reads changes behind a mark."""
        number, _, xid = mark.partition(":")
        floor = max(int(number) - IN_FLIGHT_MAX, after)
        rows = self._query(_SINCE, (floor, int(number), xid or "0", limit))
        return [mutated_of(row) for row in rows]

    def trim_mutations(self, before_ms: int, limit: int) -> int:
        """Forgets old changes."""
        self._begin()
        return len(self._query(_TRIM, (before_ms, limit)))

    def counts_by_surface(self) -> list[tuple[str, State, int]]:
        """Counts entries by surface and state."""
        return [(surface, State(state), count) for surface, state, count in self._query(_COUNTS, ())]
