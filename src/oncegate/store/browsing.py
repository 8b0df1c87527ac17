"""Browsing: what only pages read, and the notes that looking leaves behind.

Everything here goes along an index and is bounded by its `limit`, whatever the ledger holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from oncegate.store.log import LogKind, LogRecord

# Kinds above this one tell what persons did and what was given up: the journal that people read. Those
# up to it are the gate's own, one or more an event.
PEOPLE_ABOVE: Final = LogKind.FORGOTTEN
NOTED: Final = frozenset(
    {
        LogKind.REVEALED,
        LogKind.REFUSED,
        LogKind.PLAN_MADE,
        LogKind.JOB_STARTED,
        LogKind.JOB_CANCELLED,
        LogKind.SIGNED_IN,
        LogKind.SIGN_IN_REFUSED,
        LogKind.SIGNED_OUT,
        LogKind.CONTENT_PRUNED,
    }
)


class Note(Struct, frozen=True):
    """What a person did that by itself changes nothing: looked, was refused, signed in, made a plan."""

    entry_id: int
    kind: LogKind
    at_ms: int
    actor: str
    note: str


class Browsing(Protocol):
    """Lists for pages, and notes."""

    def known_names(self, limit: int) -> list[str]:
        """Returns the names of surfaces, tenants, destinations and people, those written first at most."""

    def log_before(self, before: int | None, limit: int, *, by_people: bool) -> list[LogRecord]:
        """Returns records before a position, newest first; None is the end of the log.

        With `by_people`, only those whose kind is above `PEOPLE_ABOVE`.
        """

    def add_notes(self, notes: Sequence[Note]) -> list[bool]:
        """Adds one record each to the log; False for an entry that is not there (any more).

        Entry 0 is about no entry. Takes only the kinds in `NOTED`.
        """
