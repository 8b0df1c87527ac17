"""What all surfaces counted in pieces of time, for the chart of the page Now.

Buckets that are over are read once and remembered. Those of the last minutes are read at each look.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from oncegate.signals.measures import SETTLED_MINUTES
from oncegate.signals.snapshot import NOTHING, Counts, by_surface
from oncegate.store import Session, What

REMEMBERED_MAX: Final = 500

Bucket = tuple[int, int, int, int]  # new, repeats, held or quarantined, failed


class ChartMemory:
    """Buckets that were over when they were read, by their first and last minute."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Bucket] = {}

    def read(self, session: Session, first: int, last: int, now: int) -> Bucket:
        """One bucket; from the ledger only while its counters may still grow."""
        known = self._known.get((first, last))
        if known is None:
            known = bucket_of(session, first, last)
            if last + SETTLED_MINUTES <= now:
                if len(self._known) >= REMEMBERED_MAX:
                    self._known.clear()
                self._known[first, last] = known
        return known


def bucket_of(session: Session, first: int, last: int) -> Bucket:
    """What all surfaces counted in some minutes. An event that failed is not counted as new as well."""
    counts = reduce(Counts.plus, by_surface(session.tally_sums(first, last)).values(), NOTHING)
    failed = counts.of(What.FAILED)
    stopped = counts.of(What.QUARANTINED) + counts.of(What.HELD)
    return max(0, counts.of(What.FRESH) - failed), counts.repeats, stopped, failed
