"""What the journal needs of a ledger: the bodies that records are about, and their removal on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

ERASED_NOTE: Final = "erased:"  # what a note begins with whose text was removed; its commitment follows
ERASED_LABEL: Final = "(erased)"
ERASED_VALUE: Final = b'"(erased)"'  # in the place of an object's value among the changes of an event
ERASED_COPY: Final = b'{"erased":true}'  # in the place of what was published or delivered


class EntryBodies(Struct, frozen=True, gc=False):
    """An entry's event and outcome as the ledger has them now, and what they are found by."""

    entry_id: int
    surface: str
    received_at_ms: int
    body: bytes | None
    outcome: bytes | None


class Erasure(Struct, frozen=True):
    """Asks to remove what entries hold: event, outcome, steps, label, and the notes of their records.

    Keys, fingerprints and the records themselves stay. `outcome` takes the place of an outcome. `notes` are
    the commitments that take the place of notes, by the position of their record. With `note` each entry
    that held something gets a log record, and what its event led to goes too: values of objects it changed,
    events it published, deliveries that have arrived. Without one the caller writes a record for all.
    """

    entries: tuple[int, ...]
    at_ms: int
    actor: str
    outcome: bytes
    note: str | None = None
    notes: tuple[tuple[int, str], ...] = ()


class Sealing(Protocol):
    """Bodies by entry, and erasure."""

    def bodies(self, entries: Sequence[int]) -> list[EntryBodies]:
        """Reads the bodies of entries; those that are forgotten are left out."""

    def erase(self, wanted: Erasure) -> list[int]:
        """Removes what final entries hold; returns those that held something."""
