"""Reads a snapshot from a ledger: a few sums and counts, none of which looks at settled entries.

Whoever measures often keeps a `Memory`: what was counted in six hours or more changes little from one
minute to the next, and adding up a week of minutes takes longer than everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncegate.clock import Clock
from oncegate.signals.snapshot import HOUR, WINDOWS, Counts, Snapshot, by_surface
from oncegate.store import Session

MINUTE_MS: Final = 60_000
LATE_PART: Final = 144  # a remembered window may end so small a part of its length too early,
LATE_MINUTES_MAX: Final = 10


class Memory:
    """Sums of long windows that were read before. Several threads may use it."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, dict[str, Counts]]] = {}

    def sums(self, session: Session, length: int, end: int) -> dict[str, Counts]:
        """What was counted in a window that ends before a minute, or did a little earlier."""
        if length <= HOUR:
            return _sums(session, length, end)
        known = self._known.get(length)
        if known is None or not 0 <= end - known[0] < min(length // LATE_PART, LATE_MINUTES_MAX):
            known = self._known[length] = (end, _sums(session, length, end))
        return known[1]


def _sums(session: Session, length: int, end: int) -> dict[str, Counts]:
    return by_surface(session.tally_sums(end - length, end))


def measure(
    session: Session,
    clock: Clock,
    now_ms: int | None = None,
    *,
    windows: Sequence[int] = WINDOWS,
    memory: Memory | None = None,
) -> Snapshot:
    """Takes a snapshot; `now_ms` is the wall time to go by, where the clock's own is not believed."""
    memory = memory or Memory()
    wall_ms = clock.wall_ms()
    now_ms = wall_ms if now_ms is None else now_ms
    end = now_ms // MINUTE_MS + 1
    return Snapshot(
        now_ms,
        session.now_ticks(),
        {length: memory.sums(session, length, end) for length in windows},
        tuple(session.waiting()),
        session.clock_ahead_ms(wall_ms),
        tuple(session.destinations()),
    )
