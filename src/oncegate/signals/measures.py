"""Reads a snapshot from a ledger: a few sums and counts, none of which looks at settled entries.

Whoever measures often keeps a `Memory`: what was counted in six hours or more changes little from one
minute to the next, and adding up a week of minutes takes longer than everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncegate.clock import Clock
from oncegate.signals.snapshot import HOUR, WINDOWS, Counts, Snapshot, added, by_surface
from oncegate.store import Session, Waiting

MINUTE_MS: Final = 60_000
LATE_PART: Final = 144  # a remembered window may begin so small a part of its length too early,
LATE_MINUTES_MAX: Final = 10
SETTLED_MINUTES: Final = 5  # after which processes have written down what they counted in a minute


class Memory:
    """Sums of long windows, and what waits, as they were read before. Several threads may use it.

    What is remembered ends some minutes ago, when counting was over; what came since is read each time, so
    that nothing is shown as missing that has just arrived.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, dict[str, Counts]]] = {}
        self._parked: tuple[bytes, list[Waiting]] | None = None

    def waiting(self, session: Session) -> list[Waiting]:
        """What is open: those in flight counted anew, the others only if any of them has changed."""
        mark = session.waiting_mark()
        if mark is None:
            return session.waiting()
        known = self._parked
        if known is None or known[0] != mark:
            known = self._parked = (mark, session.waiting(in_flight=False))
        return [*session.waiting(in_flight=True), *known[1]]

    def sums(self, session: Session, length: int, end: int) -> dict[str, Counts]:
        """What was counted in a window that ends before a minute; it may begin a little too early."""
        if length <= HOUR:
            return by_surface(session.tally_sums(end - length, end))
        settled = end - SETTLED_MINUTES
        known = self._known.get(length)
        if known is None or not 0 <= settled - known[0] < min(length // LATE_PART, LATE_MINUTES_MAX):
            past = by_surface(session.tally_sums(end - length, settled))
            known = self._known[length] = (settled, past)
        return added(known[1], by_surface(session.tally_sums(known[0], end)))


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
        tuple(memory.waiting(session)),
        session.clock_ahead_ms(wall_ms),
        tuple(session.destinations()),
    )
