"""What came in the last hour and was not simply run, by reason and surface: for the page Now.

Made of the counters that the page has read anyway: no query of its own, however large the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from oncegate.model.states import State
from oncegate.signals.snapshot import HOUR, Counts, Snapshot
from oncegate.store import What

PLACES_MAX: Final = 3
NOT_CLASSIFIED: Final = "not classified"
OTHER: Final = "other"
_QUARANTINED: Final = State.QUARANTINED.label
_MEANINGS: Final = {
    "key_input": "a field that the key is made of is missing or cannot be read",
    "tenant_input": "it does not say whose event it is",
    "bad_time": "its own time cannot be read",
    "skew": "its own time is too far from ours",
    "content_input": "a field that tells what it changes is missing or cannot be read",
    "beyond_retention": "it is older than its surface remembers",
    "lane_input": "a field that its lane is made of is missing or cannot be read",
    "event_input": "a field does not have the type that the handler's annotation declares",
    OTHER: "the reason stands on each of them",
}


class Drop(Struct, frozen=True):
    """One reason: of repeats, quarantines or holds; how often, where most, and what it means."""

    kind: str
    reason: str
    count: int
    where: str
    meaning: str


Found = tuple[str, str, str, int]  # kind, reason, meaning, how often


def drops_of(snapshot: Snapshot) -> list[Drop]:
    """All reasons of the last hour, the most frequent first."""
    places: dict[tuple[str, str, str], dict[str, int]] = {}
    for surface in snapshot.surfaces:
        for *what, count in _of_surface(snapshot.counts(HOUR, surface)):
            kind, reason, meaning = what
            places.setdefault((kind, reason, meaning), {})[surface] = count
    drops = [
        Drop(kind, reason.replace("_", " "), sum(counts.values()), _where(counts), meaning)
        for (kind, reason, meaning), counts in places.items()
    ]
    return sorted(drops, key=lambda drop: (-drop.count, drop.kind, drop.reason))


def _of_surface(counts: Counts) -> Iterator[Found]:
    found = [*_repeats(counts), *_quarantines(counts)]
    found.append(("held", "approval", "a person approves every event first", counts.of(What.HELD)))
    return (one for one in found if one[3] > 0)


def _repeats(counts: Counts) -> Iterator[Found]:
    """By class; where very many came at once only the first are classified."""
    classes = counts.classes()
    for kind, count in classes.items():
        yield "repeat", kind.label, kind.advice, count
    of_known = sum(count for kind, count in classes.items() if kind.is_of_known_key)
    yield (
        "repeat",
        NOT_CLASSIFIED,
        "only counted: very many came at once, or they were refused before they were stored",
        counts.repeats + counts.retries - of_known,
    )


def _quarantines(counts: Counts) -> Iterator[Found]:
    """By the first word of the reason; what was counted without one is shown as such."""
    reasons = counts.reasons()
    untold = counts.of(What.QUARANTINED) - sum(reasons.values())
    reasons[OTHER] = reasons.get(OTHER, 0) + max(0, untold)
    for reason, count in reasons.items():
        yield _QUARANTINED, reason, _MEANINGS.get(reason, ""), count


def _where(counts: dict[str, int]) -> str:
    """The surfaces that had most of it."""
    names = sorted(counts, key=lambda name: (-counts[name], name))
    more = len(names) - PLACES_MAX
    return ", ".join(names[:PLACES_MAX]) + (f" and {more} more" if more > 0 else "")
