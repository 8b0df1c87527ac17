"""How long keys should be kept, proposed from how long after their first arrival events came again (D3).

A proposal is for people: nothing applies it by itself, and none is below the floor. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from msgspec import Struct

from oncegate.model.retention import RETENTION_FLOOR
from oncegate.store.tallies import delay_bound_seconds

SAFETY: Final = 2  # times the longest delay that was seen
REPEATS_MIN: Final = 20  # fewer say nothing about how late they may come
_DAY: Final = timedelta(days=1)


class Delays(Struct, frozen=True):
    """Repeats by how long after the first arrival they came: an upper bound in seconds, and how many."""

    buckets: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """How many repeats came."""
        return sum(count for _, count in self.buckets)

    @property
    def longest(self) -> timedelta | None:
        """Within which time all of them came; None where none did."""
        return timedelta(seconds=self.buckets[-1][0]) if self.buckets else None

    def within(self, share: float) -> timedelta | None:
        """Within which time so large a share of them came."""
        seen = 0
        for bound, count in self.buckets:
            seen += count
            if seen >= share * self.count:
                return timedelta(seconds=bound)
        return None

    @property
    def proposed(self) -> timedelta | None:
        """A window in whole days, not below the floor; None where too little was seen."""
        if self.longest is None or self.count < REPEATS_MIN:
            return None
        return max(RETENTION_FLOOR, -(-self.longest * SAFETY // _DAY) * _DAY)


def delays_of(counts: Mapping[int, int]) -> Delays:
    """The delays in counters of one surface, by kind."""
    found = [
        (bound, count) for what, count in counts.items() if (bound := delay_bound_seconds(what)) is not None
    ]
    return Delays(tuple(sorted(found)))
