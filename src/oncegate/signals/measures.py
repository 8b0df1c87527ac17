"""Reads a snapshot from a ledger: a few sums and counts, none of which looks at settled entries."""

from __future__ import annotations

from typing import Final

from oncegate.clock import Clock
from oncegate.signals.snapshot import WINDOWS, Snapshot, by_surface
from oncegate.store import Session

MINUTE_MS: Final = 60_000


def measure(session: Session, clock: Clock, now_ms: int | None = None) -> Snapshot:
    """Takes a snapshot; `now_ms` is the wall time to go by, where the clock's own is not believed."""
    wall_ms = clock.wall_ms()
    now_ms = wall_ms if now_ms is None else now_ms
    end = now_ms // MINUTE_MS + 1
    return Snapshot(
        now_ms,
        session.now_ticks(),
        {length: by_surface(session.tally_sums(end - length, end)) for length in WINDOWS},
        tuple(session.waiting()),
        session.clock_ahead_ms(wall_ms),
        tuple(session.destinations()),
    )
