"""Recent final outcomes in memory, so that a quick replay costs no store call.

Only final entries are kept: they never change. Bounded in count and size; safe to lose. Memory answers only
for a second after the ledger did: a ledger that went back is noticed by asking it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.model.states import State

ENTRIES_MAX: Final = 20_000
OUTCOME_BYTES_MAX: Final = 2_048
FRESH_MS: Final = 1_000  # so long after the ledger's last answer memory may answer for it


class CachedOutcome(Struct, frozen=True, gc=False):
    """A final entry as a replay needs it."""

    entry_id: int
    state: State
    fingerprint: bytes
    outcome: bytes | None
    reason: str | None
    received_at_ms: int = 0
    claimed_again: bool = False


class OutcomeCache:
    """Final entries by key digest; the oldest are dropped first."""

    def __init__(self, entries_max: int = ENTRIES_MAX, clock: Clock | None = None) -> None:
        self._ticks_ms = None if clock is None else clock.ticks_ms
        self.confirmed_ms = 0  # when the ledger was last asked, and answered
        self._entries: dict[bytes, CachedOutcome] = {}
        self._oldest_first: deque[bytes] = deque()  # a dict's own order is slow to find the first of
        self._entries_max = entries_max

    def get(self, digest: bytes, now_ms: int | None = None) -> CachedOutcome | None:
        """Finds a final entry, if the ledger has answered just now: it may be another one by now (I23).

        `now_ms` is the clock's ticks, where the caller has just read them.
        """
        found = self._entries.get(digest)
        if found is None or self._ticks_ms is None:
            return found
        return found if (now_ms or self._ticks_ms()) - self.confirmed_ms <= FRESH_MS else None

    def put(self, digest: bytes, entry: CachedOutcome) -> None:
        """Remembers a final entry, unless it is bulky or not final."""
        if not entry.state.is_final or len(entry.outcome or b"") > OUTCOME_BYTES_MAX:
            return
        if self._entries_max <= 0:
            return
        if digest not in self._entries:
            self._oldest_first.append(digest)
            if len(self._entries) >= self._entries_max:
                self._entries.pop(self._oldest_first.popleft(), None)
        self._entries[digest] = entry

    def clear(self) -> None:
        """Forgets everything: the ledger is another one."""
        self._entries.clear()
        self._oldest_first.clear()

    def __len__(self) -> int:
        return len(self._entries)
