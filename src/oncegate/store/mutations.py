"""Mutations: what events changed in users' own objects, so that a roll-back knows what to undo (E9).

Rows are only ever added. A change inside the event's transaction is one row with both values. A change
outside the ledger's database is two rows: one before the call, with `is_done` false, and one after it.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from msgspec import Struct

from oncegate.model.states import State

# Joins the business writes of an event, on every store that takes them.
NOTE_MUTATION: Final = (
    "INSERT INTO oncegate_mutation (entry, name, target, nth, before, after, done, at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


class Mutated(Struct, frozen=True):
    """One change of one object. Values are canonical JSON; None where the object does not exist.

    `target` is the object's id as JSON. `nth` tells changes of one object by one event apart.
    """

    number: int
    entry_id: int
    name: str
    target: str
    nth: int
    before: bytes | None
    after: bytes | None
    is_done: bool
    at_ms: int

    @property
    def row(self) -> tuple[int, str, str, int, bytes | None, bytes | None, int, int]:
        """The values of `NOTE_MUTATION`."""
        values = (self.entry_id, self.name, self.target, self.nth, self.before, self.after)
        return (*values, int(self.is_done), self.at_ms)


def mutated_of(row: tuple[Any, ...]) -> Mutated:
    """A change from its row: number, entry, name, target, nth, before, after, done, at."""
    number, entry, name, target, nth, before, after, done, at_ms = row
    return Mutated(number, entry, name, target, nth, before, after, bool(done), at_ms)


class Mutations(Protocol):
    """Notes and reads changes; counts entries for snapshots."""

    def note_mutation(self, one: Mutated) -> None:
        """Adds a change; its number is given here."""

    def mutation_mark(self) -> str:
        """A place in the order of changes: all that commit from now on are behind it."""

    def mutations_since(self, mark: str, after: int, limit: int) -> list[Mutated]:
        """Reads changes behind a mark with numbers above `after`, in order of their numbers.

        Some that committed shortly before the mark was made may be among them.
        """

    def trim_mutations(self, before_ms: int, limit: int) -> int:
        """Forgets changes made before a moment, at most so many; returns how many."""

    def counts_by_surface(self) -> list[tuple[str, State, int]]:
        """Counts entries by surface and state."""
