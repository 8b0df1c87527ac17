"""How well deliveries go: attempts of each destination counted by minute, and read as a rate and a p95.

Counted in memory and written about once a second with the other tallies, so that a delivery costs no write
more. A killed process loses what it counted in its last second. Readers add up one hour of tallies.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Observe
from oncegate.errors import StoreError, StoreUnknown
from oncegate.store import Observations, Session, Tally
from oncegate.store.tallies import duration_bound_ms, of_delivery, of_duration

WINDOW_MINUTES: Final = 60
UNTOLD_MAX: Final = 10_000  # counters kept while the ledger cannot be reached
_MINUTE_MS: Final = 60_000
_SUCCEEDED: Final = of_delivery(succeeded=True)
_FAILED: Final = of_delivery(succeeded=False)


class DeliveryCounts:
    """What one engine has counted and not written yet."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock
        self._counts: Counter[tuple[str, int, int]] = Counter()

    def succeeded(self, destination: str, took_ms: int) -> None:
        """Counts an attempt that was acknowledged."""
        minute = self._clock.wall_ms() // _MINUTE_MS
        self._counts[destination, minute, _SUCCEEDED] += 1
        self._counts[destination, minute, of_duration(took_ms)] += 1

    def failed(self, destination: str) -> None:
        """Counts an attempt that failed."""
        self._counts[destination, self._clock.wall_ms() // _MINUTE_MS, _FAILED] += 1

    async def tell(self) -> None:
        """Writes what was counted; keeps it for the next time where the ledger cannot be reached."""
        counts, self._counts = self._counts, Counter()
        if not counts:
            return
        tallies = tuple(Tally(*key, count) for key, count in counts.items())
        try:
            await self._commits.submit_async(Observe(Observations(tallies)))
        except StoreUnknown:
            pass  # perhaps written: to count it twice would be worse
        except StoreError:
            if len(counts) <= UNTOLD_MAX:
                self._counts.update(counts)


class DeliveryStats(Struct, frozen=True):
    """Attempts of one destination in the last hour; `p95_ms` is of those that succeeded."""

    succeeded: int
    failed: int
    p95_ms: int | None

    @property
    def rate(self) -> float | None:
        """The share of attempts that succeeded; None where there was none."""
        attempts = self.succeeded + self.failed
        return self.succeeded / attempts if attempts else None


NO_DELIVERIES: Final = DeliveryStats(0, 0, None)


def delivery_stats(session: Session, now_ms: int) -> dict[str, DeliveryStats]:
    """The last hour of every destination that had an attempt; reads an hour of tallies and nothing else."""
    end = now_ms // _MINUTE_MS + 1
    found: dict[str, dict[int, int]] = {}
    for tally in session.tally_sums(end - WINDOW_MINUTES, end):
        if tally.what >= _SUCCEEDED:
            found.setdefault(tally.surface, {})[tally.what] = tally.count
    return {
        name: DeliveryStats(counts.get(_SUCCEEDED, 0), counts.get(_FAILED, 0), _p95(counts))
        for name, counts in found.items()
    }


def _p95(counts: dict[int, int]) -> int | None:
    """The time within which 95 of 100 deliveries ended, rounded up to the limit of its bucket."""
    bounds = sorted((bound, counts[what]) for what in counts if (bound := duration_bound_ms(what)))
    wanted, seen = 0.95 * sum(count for _, count in bounds), 0
    for bound, count in bounds:
        seen += count
        if seen >= wanted:
            return bound
    return None
