"""Changes of users' objects on the embedded ledger. Mixed into the session."""

from __future__ import annotations

import sqlite3
from typing import Final

from oncegate.model.states import State
from oncegate.store.mutations import NOTE_MUTATION, Mutated, mutated_of

_MARK: Final = "SELECT coalesce(max(number), 0) FROM oncegate_mutation"
_SINCE: Final = (
    "SELECT number, entry, name, target, nth, before, after, done, at FROM oncegate_mutation"
    " WHERE number > ? ORDER BY number LIMIT ?"
)
# The newest row stays: its number is never given out again.
_TRIM: Final = (
    "DELETE FROM oncegate_mutation WHERE number IN ("
    "SELECT number FROM oncegate_mutation WHERE at < ?"
    " AND number < (SELECT max(number) FROM oncegate_mutation) ORDER BY number LIMIT ?)"
)
_COUNTS: Final = (
    "SELECT name.text, state, count(*) FROM oncegate_entry JOIN oncegate_name AS name ON name.id = surface"
    " GROUP BY name.text, state ORDER BY name.text, state"
)


class SqliteMutations:
    """Note, mark, read, trim, count."""

    _connection: sqlite3.Connection

    def note_mutation(self, one: Mutated) -> None:
        """Adds a change."""
        self._connection.execute(NOTE_MUTATION, one.row)

    def mutation_mark(self) -> str:
        """The last number: there is one writer, so all that follow are behind it."""
        return str(self._connection.execute(_MARK).fetchone()[0])

    def mutations_since(self, mark: str, after: int, limit: int) -> list[Mutated]:
        """Reads changes behind a mark."""
        floor = max(int(mark.partition(":")[0]), after)
        rows = self._connection.execute(_SINCE, (floor, limit)).fetchall()
        return [mutated_of(row) for row in rows]

    def trim_mutations(self, before_ms: int, limit: int) -> int:
        """Forgets old changes."""
        return self._connection.execute(_TRIM, (before_ms, limit)).rowcount

    def counts_by_surface(self) -> list[tuple[str, State, int]]:
        """Counts entries by surface and state."""
        rows = self._connection.execute(_COUNTS).fetchall()
        return [(surface, State(state), count) for surface, state, count in rows]
