"""How much waits at destinations, as one process knows it: counted now and then, else estimated. Pure.

What this process adds is counted at once, what others add and what is delivered only at the next count: the
limit is kept to within what happens in one interval.
"""

from __future__ import annotations

from typing import Final

DESTINATION_BACKLOG_MAX: Final = 1_000_000
COUNT_EVERY_MS: Final = 10_000
COUNT_AGAIN_MS: Final = 1_000  # while it is full: what was refused may go as soon as there is room
ADDED_MAX: Final = 10_000  # by this process between two counts


class Backlog:
    """The backlog of each destination; ticks are passed in."""

    def __init__(self, most: int = DESTINATION_BACKLOG_MAX) -> None:
        self.most = most
        self._waiting: dict[str, int] = {}
        self._added: dict[str, int] = {}
        self._next_ticks: dict[str, int] = {}

    def must_count(self, destination: str, now_ticks: int) -> bool:
        """Whether it is time to count; of many callers at once, one gets True."""
        due = now_ticks >= self._next_ticks.get(destination, now_ticks)
        if not due and self._added.get(destination, 0) < ADDED_MAX:
            return False
        self._next_ticks[destination] = now_ticks + COUNT_EVERY_MS
        self._added[destination] = 0
        return True

    def counted(self, destination: str, waiting: int, now_ticks: int) -> None:
        """Notes what was counted."""
        self._waiting[destination] = waiting
        if waiting >= self.most:
            self._next_ticks[destination] = now_ticks + COUNT_AGAIN_MS

    def takes_one(self, destination: str) -> bool:
        """Whether there is room for one more, which is counted then."""
        waiting = self._waiting.get(destination, 0) + self._added.get(destination, 0)
        if waiting >= self.most:
            return False
        self._added[destination] = self._added.get(destination, 0) + 1
        return True
