"""What all stores share about second resources: the words in the log, and rows as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from oncegate.model.states import State
from oncegate.store import (
    EntryDetail,
    LateResource,
    LogKind,
    Observations,
    ResourceDismissal,
    ResourceSeen,
    SecondCount,
    SecondResource,
)

NOTE_LENGTH_MAX: Final = 300
READ: Final = """
SELECT second.id, coalesce(name.text, ''), second.target, second.step, second.place, second.entry,
       second.resource, second.other, second.other_resource, second.found_at, later.state,
       coalesce(person.text, ''), coalesce(second.note, '')
FROM oncegate_second AS second
LEFT JOIN oncegate_entry AS later ON later.id = second.entry
LEFT JOIN oncegate_name AS name ON name.id = later.surface
LEFT JOIN oncegate_name AS person ON person.id = second.dismissed_by
WHERE second.dismissed_at IS NULL AND second.id > {place} ORDER BY second.id LIMIT {place}
"""
# In flight and retryable entries of a key may still come to the very resource that was found.
COUNT: Final = """
SELECT coalesce(name.text, ''), second.target = '', count(*),
       count(DISTINCT CASE WHEN second.target = '' THEN CAST(second.entry AS text)
                           ELSE second.target || ' at ' || second.place END),
       min(second.found_at)
FROM oncegate_second AS second
LEFT JOIN oncegate_entry AS later ON later.id = second.entry
LEFT JOIN oncegate_name AS name ON name.id = later.surface
WHERE second.dismissed_at IS NULL AND (second.target <> '' OR later.state NOT IN (1, 4))
GROUP BY 1, 2 ORDER BY 1, 2
"""


def resources_of(seen: Sequence[Observations]) -> list[ResourceSeen]:
    """What several callers saw, in one order for all: no two processes wait for each other."""
    found = [one for item in seen for one in item.resources]
    return sorted(found, key=lambda one: one.about)


def counts_of(rows: Sequence[tuple[Any, ...]]) -> list[SecondCount]:
    """Counts as values; SQLite has no yes and no."""
    return [SecondCount(surface, bool(of_key), *rest) for surface, of_key, *rest in rows]


def word_kind(dismissal: ResourceDismissal) -> LogKind:
    """How the log calls a person's word."""
    return LogKind.DISMISSED if dismissal.closes else LogKind.SECOND_RESOURCE


def late_note(late: LateResource) -> str:
    """What the log says of a resource that a late worker brought back."""
    return f"{late.place} gave {late.resource} for {late.step} to a worker that had lost the key"[
        :NOTE_LENGTH_MAX
    ]


def second_note(seen: ResourceSeen, resource: str, other: int) -> str:
    """What the log says of a target's second resource, at either entry."""
    return f"{seen.place} gave {resource} for {seen.target} too, to entry {other}"[:NOTE_LENGTH_MAX]


def second_of(row: tuple[Any, ...], detail: Callable[[int], EntryDetail | None]) -> SecondResource:
    """A finding as it was read; of a key, with what the key's entry came to."""
    state = None if row[10] is None else State(row[10])
    facts: list[Any] = [*row[:10], state, None, *row[11:]]
    found = SecondResource(*facts)
    of_key = detail(found.entry_id) if found.is_of_key else None
    return found if of_key is None else replace(found, outcome=of_key.outcome)
