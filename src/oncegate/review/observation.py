"""What a gate would have done at surfaces that observe: counts, reasons and samples, for people."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from oncegate.store import Session, What
from oncegate.store.notices import OBSERVED, ObservedSample
from oncegate.store.tallies import observed_reason, of_observed

MINUTE_MS: Final = 60_000
_NEW: Final = (What.FRESH, What.RETRY, What.RECOVER)


class ObservedSurface(Struct, frozen=True):
    """One surface in one period. `not_recorded` ran and left no key in the ledger."""

    surface: str
    new: int
    repeats: int
    busy: int
    conflicts: int
    quarantines: int
    held: int
    not_recorded: int
    reasons: dict[str, int]
    samples: list[ObservedSample]

    @property
    def arrivals(self) -> int:
        """Every arrival, each of which ran."""
        return self.new + self.stopped + self.not_recorded

    @property
    def stopped(self) -> int:
        """Arrivals that the gate would not have run."""
        return self.repeats + self.busy + self.conflicts + self.quarantines + self.held


def observed_surfaces(session: Session, since_ms: int, until_ms: int) -> list[ObservedSurface]:
    """Surfaces that observed anything in a period, by name."""
    sums: dict[str, dict[int, int]] = {}
    for tally in session.tally_sums(since_ms // MINUTE_MS, until_ms // MINUTE_MS + 1):
        sums.setdefault(tally.surface, {})[tally.what] = tally.count
    samples: dict[str, list[ObservedSample]] = {}
    for notice in session.notices(OBSERVED):
        sample = msgspec.json.decode(notice.body, type=ObservedSample)
        if sample.at_ms >= since_ms:
            samples.setdefault(notice.name, []).append(sample)
    found = [_surface(name, counts, samples.get(name, [])) for name, counts in sorted(sums.items())]
    return [one for one in found if one.arrivals]


def _surface(name: str, counts: dict[int, int], samples: list[ObservedSample]) -> ObservedSurface:
    def of(*kinds: What) -> int:
        return sum(counts.get(of_observed(kind), 0) for kind in kinds)

    reasons = {observed_reason(what): count for what, count in counts.items()}
    return ObservedSurface(
        name,
        of(*_NEW),
        of(What.REPLAY),
        of(What.BUSY),
        of(What.CONFLICT),
        of(What.QUARANTINED, What.QUARANTINED_AGAIN),
        of(What.HOLD),
        of(What.LOST),
        {reason: count for reason, count in reasons.items() if reason is not None},
        sorted(samples, key=lambda one: -one.at_ms),
    )
