"""A clock that is ahead, so that "two hours later" need not be waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from oncegate.clock import SystemClock

TWO_HOURS: Final = timedelta(hours=2)


class LaterClock(SystemClock):
    """The machine's clocks, both wall and ticks, put ahead by a distance."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead_ms = int(ahead.total_seconds() * 1000)

    def wall_ms(self) -> int:
        """Reads the wall clock, ahead."""
        return super().wall_ms() + self._ahead_ms

    def ticks_ms(self) -> int:
        """Reads the ticks, ahead."""
        return super().ticks_ms() + self._ahead_ms
