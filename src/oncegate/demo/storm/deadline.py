"""The demo's time limit, and what is raised when something hangs or breaks."""

from __future__ import annotations

from oncegate.clock import Clock


class StormBroken(Exception):
    """The demo itself could not be played to its end; its numbers mean nothing."""


class Deadline:
    """A moment after which nothing more is waited for."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._ends_at_ticks = clock.ticks_ms() + int(seconds * 1000)

    def check(self, complaint: str) -> None:
        """Raise StormBroken with the complaint once time is up."""
        if self._clock.ticks_ms() >= self._ends_at_ticks:
            raise StormBroken(f"{complaint} within {self._seconds:.0f} s")
