"""Arrivals of known keys, classified: do they follow the order in which the keys came first (C6)?

A reader that began at an old position may reach several processes, each with a part of the run. What others
saw is merged in by time before the run is followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from oncegate.model.repeats import Classified, OrderedRun, classify
from oncegate.model.states import Decision
from oncegate.store import SeenRepeat

# A conflict is of another content. What is not settled comes again because it was asked for: a sender that
# hears 503 in an outage repeats its events in their order, and reads no old position.
_NO_ORDER: Final = frozenset({Decision.CONFLICT, Decision.RETRY, Decision.RECOVER, Decision.BUSY})
BROUGHT_MAX: Final = 64  # repeats of a surface that one process shows to others at once, the latest


class Repeated(Struct, frozen=True, gc=False):
    """An arrival of a known key, and how many new ones came since the one before it."""

    decision: Decision
    entry_id: int
    first_at_ms: int
    now_ms: int
    fresh: int
    asked: bool = False

    @property
    def has_order(self) -> bool:
        """Whether it says something about the order in which its sender sends."""
        return not self.asked and self.decision not in _NO_ORDER


def recent_of(surface: str, repeated: Sequence[Repeated]) -> list[SeenRepeat]:
    """What others are shown, as far as it says something about an order."""
    return [
        SeenRepeat(surface, one.now_ms, one.entry_id, one.first_at_ms, one.fresh)
        for one in repeated[-BROUGHT_MAX:]
        if one.has_order
    ]


def classified(
    own: Sequence[Repeated], recent: Sequence[SeenRepeat], late_after_ms: int
) -> Iterator[tuple[Repeated, Classified]]:
    """Each of a process's own repeats with its class; `recent` is what all processes saw before."""
    run = OrderedRun()
    merged: list[Repeated | SeenRepeat] = [*recent, *own]
    # Stable: arrivals of one moment stay in the order in which their process saw them.
    for one in sorted(merged, key=_moment):
        run = run.after_fresh(one.fresh)
        if isinstance(one, SeenRepeat):
            run = run.with_repeat(one.entry_id, one.first_at_ms)
            continue
        run = run.with_repeat(one.entry_id, one.first_at_ms) if one.has_order else run
        age_ms = one.now_ms - one.first_at_ms
        own_run = run if one.has_order else OrderedRun()
        yield one, classify(one.decision, age_ms, own_run, late_after_ms, asked=one.asked)


def _moment(one: Repeated | SeenRepeat) -> int:
    return one.at_ms if isinstance(one, SeenRepeat) else one.now_ms
