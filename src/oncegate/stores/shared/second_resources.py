"""What all stores share about second resources: the words in the log, and rows as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from oncegate.model.states import State
from oncegate.store import EntryDetail, LateResource, Observations, ResourceSeen, SecondResource

NOTE_LENGTH_MAX: Final = 300
READ: Final = """
SELECT second.id, coalesce(name.text, ''), second.target, second.step, second.place, second.entry,
       second.resource, second.other, second.other_resource, second.found_at, later.state
FROM oncegate_second AS second
LEFT JOIN oncegate_entry AS later ON later.id = second.entry
LEFT JOIN oncegate_name AS name ON name.id = later.surface
WHERE second.dismissed_at IS NULL AND second.id > {place} ORDER BY second.id LIMIT {place}
"""


def resources_of(seen: Sequence[Observations]) -> list[ResourceSeen]:
    """What several callers saw, in one order for all: no two processes wait for each other."""
    found = [one for item in seen for one in item.resources]
    return sorted(found, key=lambda one: one.about)


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
    facts: list[Any] = [*row[:10], state]
    found = SecondResource(*facts)
    of_key = detail(found.entry_id) if found.is_of_key else None
    return found if of_key is None else replace(found, outcome=of_key.outcome)
