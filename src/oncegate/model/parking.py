"""How much waits for a person at a surface, of one tenant and of all, as one process knows it. Pure.

Counted in the ledger now and then, and estimated between two counts. What this process adds counts at once,
what others add and what people decide counts at the next count: the limit is kept to within what happens in
one interval.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

PARKED_MAX: Final = 10_000  # entries of one surface and tenant
PARKED_BYTES_MAX: Final = 256 * 1024 * 1024  # of their events
PAIRS_MAX: Final = 4_096  # that are kept in mind; one that is dropped is counted again
COUNT_EVERY_MS: Final = 10_000
COUNT_AGAIN_MS: Final = 1_000  # while it is full: there is room as soon as a person has decided
RETRY_SECONDS: Final = 60.0  # people are not quicker

TENANTS_SHARE: Final = 4  # a surface has room for as much as so many tenants may have

Pair = tuple[str, str | None]  # a surface and a tenant, or None for all of them


class Parked(Struct, frozen=True):
    """What waits: entries that are quarantined, held or in doubt, and the bytes of their events."""

    entries: int
    bytes: int

    def plus(self, size: int) -> Parked:
        """One more event of this size."""
        return Parked(self.entries + 1, self.bytes + size)


class Parking:
    """The room for events that wait for a person, by surface and tenant."""

    def __init__(self, entries_max: int = PARKED_MAX, bytes_max: int = PARKED_BYTES_MAX) -> None:
        self.most = Parked(entries_max, bytes_max)
        self._waiting: dict[Pair, Parked] = {}
        self._next_ticks: dict[Pair, int] = {}

    def must_count(self, pair: Pair, now_ticks: int) -> bool:
        """Whether it is time to count; of many callers at once, one gets True."""
        if now_ticks < self._next_ticks.get(pair, now_ticks):
            return False
        if len(self._next_ticks) >= PAIRS_MAX:
            self._next_ticks.clear()
            self._waiting.clear()
        self._next_ticks[pair] = now_ticks + COUNT_EVERY_MS
        return True

    def counted(self, pair: Pair, found: Parked, now_ticks: int) -> None:
        """Notes what was counted."""
        self._waiting[pair] = found
        if self._is_over(pair, found.plus(0)):
            self._next_ticks[pair] = now_ticks + COUNT_AGAIN_MS

    def has_room(self, pair: Pair, size: int) -> bool:
        """Whether there is room for one more event."""
        return not self._is_over(pair, self._waiting.get(pair, Parked(0, 0)).plus(size))

    def add(self, pair: Pair, size: int) -> None:
        """Counts an event that waits from now on."""
        self._waiting[pair] = self._waiting.get(pair, Parked(0, 0)).plus(size)

    def has_any(self, pair: Pair) -> bool:
        """Whether this process knows of anything that waits."""
        return pair in self._waiting

    def _is_over(self, pair: Pair, found: Parked) -> bool:
        share = TENANTS_SHARE if pair[1] is None else 1
        return found.entries > self.most.entries * share or found.bytes > self.most.bytes * share
