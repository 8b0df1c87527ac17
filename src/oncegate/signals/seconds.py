"""Second resources that stand open: which findings of the ledger are two resources, and which are one.

What a late worker brought back is judged once its key is settled: the resource on record may be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from oncegate.gate.flows.late_results import owned_by
from oncegate.model.states import State
from oncegate.store import SecondCount, SecondResource, Session

SHOWN_MAX: Final = 1_000
MEASURED_MAX: Final = 200  # read for evidence; counts are of all
_UNDER_WAY: Final = frozenset({None, State.IN_FLIGHT, State.RETRYABLE})


def open_seconds_of(session: Session, after: int = 0, limit: int = SHOWN_MAX) -> list[SecondResource]:
    """The findings that no person has decided on, oldest first; of a key, with what it owns on record."""
    return list(judged(session.second_resources(after, limit)))


def counts_of(counts: Iterable[SecondCount], seen: Iterable[SecondResource]) -> list[SecondCount]:
    """How many findings are open, without those among `seen` that are about to be closed."""
    same = Counter(one.surface for one in seen if _is_same(one))
    found = [_without(one, same[one.surface]) if one.is_of_key else one for one in counts]
    return [one for one in found if one.findings > 0]


def _without(one: SecondCount, same: int) -> SecondCount:
    return replace(one, findings=one.findings - same, subjects=one.subjects - same)


def needless(session: Session, limit: int = SHOWN_MAX) -> list[SecondResource]:
    """Findings that turned out to be the resource on record: nothing is left to decide about them."""
    return [one for one in session.second_resources(0, limit) if _is_same(one)]


def _is_same(one: SecondResource) -> bool:
    is_done = one.is_of_key and one.state is State.COMMITTED
    return is_done and owned_by(one.outcome, one.step) == one.resource


def judged(found: Iterable[SecondResource]) -> Iterator[SecondResource]:
    """Leaves out what is not settled yet, and what turned out to be one resource."""
    for one in found:
        if not one.is_of_key:
            yield one
        elif one.state not in _UNDER_WAY:
            owned = owned_by(one.outcome, one.step)
            if owned != one.resource:
                yield replace(one, other_resource=owned)


def evidence(found: list[SecondResource], count: int) -> str:
    """The first of so many findings in words: entries and resources."""
    return f"{in_words(found[0])}{f'; {count - 1} more' if count > 1 else ''}" if found else ""


def in_words(one: SecondResource) -> str:
    """A finding: entries and resources."""
    owned = one.other_resource or "nothing on record"
    if one.is_of_key:
        return f"entry {one.entry_id} at {one.place}: {owned}, and {one.resource} by a late worker"
    first, second = f"{owned} (entry {one.other_id})", f"{one.resource} (entry {one.entry_id})"
    return f"{one.target} at {one.place}: {first} and {second}"
