"""Observations of several callers as one: what is to be added to which counter, in one order for all.

Both ledgers write them sorted: two processes that add to the same counters never wait for each other in a
circle, and no statement meets the same counter twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncegate.model.repeats import RepeatClass
from oncegate.store import Observations, Repeat

Sums = dict[tuple[int, str, int], tuple[int, int]]  # (minute, surface, what) -> (count, total)


def summed(seen: Sequence[Observations]) -> Sums:
    """Adds up equal counters; in order of minute, surface and kind."""
    sums: Sums = {}
    for item in seen:
        for tally in item.tallies:
            place = (tally.minute, tally.surface, tally.what)
            count, total = sums.get(place, (0, 0))
            sums[place] = (count + tally.count, total + tally.total)
    return dict(sorted(sums.items()))


def joined(seen: Sequence[Observations]) -> list[Repeat]:
    """Makes one of each entry's repeats of a class; in order of entry and class."""
    found: dict[tuple[int, int], Repeat] = {}
    for item in seen:
        for repeat in item.repeats:
            place = (repeat.entry_id, repeat.kind.value)
            found[place] = _joined(found[place], repeat) if place in found else repeat
    return [found[place] for place in sorted(found)]


def _joined(one: Repeat, other: Repeat) -> Repeat:
    latest = max(one, other, key=lambda repeat: repeat.last_at_ms)
    return Repeat(
        one.entry_id,
        one.kind,
        min(one.first_at_ms, other.first_at_ms),
        latest.last_at_ms,
        one.times + other.times,
        latest.evidence,
    )


def repeat_of(row: tuple[int, int, int, int, int, str]) -> Repeat:
    """A repeat as it was stored."""
    entry, kind, first_at, last_at, times, evidence = row
    return Repeat(entry, RepeatClass(kind), first_at, last_at, times, evidence)
