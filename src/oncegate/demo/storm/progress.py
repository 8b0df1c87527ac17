"""What is said while the storm runs.

One line that updates itself where a person watches, a plain line now and then where a file does. Must never
write to stdout: that belongs to the table.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Final, TextIO

from oncegate.clock import Clock

LIVE_INTERVAL_MS: Final = 80
PLAIN_INTERVAL_MS: Final = 2_000  # a log wants signs of life, not frames
_CLEAR_LINE: Final = "\r\x1b[2K"


class StormProgress:
    """Talks on one stream; the table is not its business."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._is_live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._interval_ms = LIVE_INTERVAL_MS if self._is_live else PLAIN_INTERVAL_MS
        self._shown_at_ticks = clock.ticks_ms()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._write((_CLEAR_LINE if self._is_live else "") + text + "\n")
        self._shown_at_ticks = self._clock.ticks_ms()

    def update(self, describe: Callable[[], str]) -> None:
        """Print a line that the next one replaces, where it can; not more often than is useful."""
        now = self._clock.ticks_ms()
        if now - self._shown_at_ticks < self._interval_ms:
            return
        self._shown_at_ticks = now
        text = describe()
        self._write(_CLEAR_LINE + self._fitted(text) if self._is_live else text + "\n")

    def close(self) -> None:
        """Take the updating line away, so that whatever is said next starts on a clean one."""
        if self._is_live:
            self._write(_CLEAR_LINE)

    @staticmethod
    def _fitted(text: str) -> str:
        """A line that does not wrap, because a wrapped one cannot be cleared."""
        return text[: shutil.get_terminal_size().columns - 1]

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
