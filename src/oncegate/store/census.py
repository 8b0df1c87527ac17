"""The census: lists and counts for people, pages and workers. Only reads.

A store that has `Facet.OPEN_ENTRIES` without `Facet.REVIEW` lists and counts entries that are not final,
and its numbers of entries say nothing about their age.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.json import encode

from oncegate.errors import ConfigError
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

    def fits(self, found: EntryDetail) -> bool:
        """Whether an entry has all that is asked for; for stores that do not ask a database."""
        entry = found.entry
        return (
            (not self.states or entry.state in self.states)
            and self.surface in (None, entry.surface)
            and self.tenant in (None, entry.tenant)
            and entry.key.hex().startswith(checked_prefix(self.key_prefix or ""))
            and (self.label_contains or "") in entry.label
            and (self.reason_contains or "") in (entry.reason or "")
            and self.cause in (None, _cause(entry))
            and (self.resource is None or _names(found, self.resource))
            and self._is_within(entry)
        )

    def _is_within(self, entry: Entry) -> bool:
        """Whether an entry's times and number are within the limits."""
        settled, before = entry.settled_at_ms, self.settled_before_ms
        return (
            (before is None or (settled is not None and settled < before))
            and (self.received_before_ms is None or entry.received_at_ms < self.received_before_ms)
            and (self.received_after_ms is None or entry.received_at_ms > self.received_after_ms)
            and (self.above_id is None or entry.entry_id > self.above_id)
        )


def checked_prefix(prefix: str) -> str:
    """How a key begins; raises ConfigError if no key begins like this."""
    try:
        bytes.fromhex(prefix.ljust(64, "0"))
    except ValueError:
        raise ConfigError(f"{prefix[:60]!r} is not the beginning of a key") from None
    return prefix


def _names(found: EntryDetail, resource: str) -> bool:
    is_in_outcome = encode(resource) in (found.outcome or b"")
    return is_in_outcome or any(step.resource == resource for step in found.steps)


def _cause(entry: Entry) -> str:
    """The kind of reason, as `waiting` counts it."""
    reason = entry.reason or ""
    if entry.state is State.QUARANTINED:
        return reason.partition(":")[0] if 1 <= reason.find(":") <= 39 else "other"
    if entry.state not in (State.UNKNOWN, State.HELD):
        return ""
    if reason.startswith("gave up after "):
        return "attempts_used_up"
    if " resources for " in reason:
        return "two_resources"
    return "approval" if entry.state is State.HELD and "approv" in reason else "in_doubt"


class Census(Protocol):
    """Lists and counts."""

    def entries(self, wanted: EntryFilter, before_id: int | None, limit: int) -> list[Entry]:
        """Returns entries, newest first, with ids below `before_id`."""

    def oldest_entries(self, wanted: EntryFilter, after_id: int, limit: int) -> list[Entry]:
        """Returns entries, oldest first, with ids above `after_id`. For states that are not final."""

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
        """Returns entries whose lease has expired or that may be tried again, those due first at the front.

        A failed attempt whose wait is not over is among them, with its `retry_at_ticks`.

        Only those of the given surfaces count, if any are given.
        """
