"""The census: lists and counts for people, pages and workers. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from oncegate.model.parking import Parked
from oncegate.model.states import State
from oncegate.store.claims import Entry, EntryDetail


class EntryFilter(Struct, frozen=True):
    """Which entries to list; every field that is None is not asked for.

    `settled_before_ms`: entries that have stood in their state since before this moment. `above_id`:
    entries with larger ids, which bounds how far a search for something rare goes back. `cause` is the kind
    of reason under which `waiting` counts what is open. `resource`: entries whose outcome has this text as
    one of its values, or a step of which has it as its resource; no index leads there, so bound the search.
    """

    states: tuple[State, ...] = ()
    surface: str | None = None
    tenant: str | None = None
    key_prefix: str | None = None
    label_contains: str | None = None
    reason_contains: str | None = None
    settled_before_ms: int | None = None
    received_before_ms: int | None = None
    received_after_ms: int | None = None
    above_id: int | None = None
    cause: str | None = None
    resource: str | None = None


class Census(Protocol):
    """Lists and counts."""

    def entries(self, wanted: EntryFilter, before_id: int | None, limit: int) -> list[Entry]:
        """Returns entries, newest first, with ids below `before_id`."""

    def detail(self, entry_id: int) -> EntryDetail | None:
        """Reads one entry with all that belongs to it."""

    def parked(self, surface: str, tenant: str | None) -> Parked:
        """Counts what waits for a person at a surface, of a tenant or of all, and the bytes of the events.

        These are entries that are quarantined, held or in doubt.
        """

    def counts(self) -> dict[State, int]:
        """Counts entries by state."""

    def surfaces(self) -> list[str]:
        """Names the surfaces that have entries."""

    def stranded(self, limit: int, surfaces: Sequence[str] | None = None) -> list[EntryDetail]:
        """Returns entries whose lease has lapsed or that may be tried again, those due first at the front.

        A failed attempt whose wait is not over is among them, with its `retry_at_ticks`.

        Only those of the given surfaces count, if any are given.
        """
