"""Second resources that stand open: which findings of the ledger are two resources, and which are one.

What a late worker brought back is judged once its key is settled: the resource on record may be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from oncegate.gate.flows.late_results import owned_by
from oncegate.model.states import State
from oncegate.store import SecondResource, Session

SHOWN_MAX: Final = 1_000
_UNDER_WAY: Final = frozenset({None, State.IN_FLIGHT, State.RETRYABLE})


def open_seconds_of(session: Session, limit: int = SHOWN_MAX) -> list[SecondResource]:
    """The findings that no person has decided on, oldest first; of a key, with what it owns on record."""
    return list(_judged(session.second_resources(0, limit)))


def needless(session: Session, limit: int = SHOWN_MAX) -> list[SecondResource]:
    """Findings that turned out to be the resource on record: nothing is left to decide about them."""
    found = (one for one in session.second_resources(0, limit) if one.is_of_key)
    return [
        one
        for one in found
        if one.state is State.COMMITTED and owned_by(one.outcome, one.step) == one.resource
    ]


def _judged(found: list[SecondResource]) -> Iterator[SecondResource]:
    for one in found:
        if not one.is_of_key:
            yield one
        elif one.state not in _UNDER_WAY:
            owned = owned_by(one.outcome, one.step)
            if owned != one.resource:
                yield replace(one, other_resource=owned)


def evidence(found: list[SecondResource]) -> str:
    """The first finding in words: entries and resources."""
    if not found:
        return ""
    one = found[0]
    owned = one.other_resource or "nothing on record"
    if one.is_of_key:
        told = f"entry {one.entry_id} at {one.place}: {owned}, and {one.resource} by a late worker"
    else:
        first, second = f"{owned} (entry {one.other_id})", f"{one.resource} (entry {one.entry_id})"
        told = f"{one.target} at {one.place}: {first} and {second}"
    return told if len(found) == 1 else f"{told}; {len(found) - 1} more"
