"""How long to wait before trying again.

Called by the sender and by the gate's retries. Must never draw a random number or read a clock: the
jitter is passed in, so that a test or a simulation sees the same schedule every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import isfinite
from zlib import crc32

from oncegate.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential growth from `base` up to `cap`, at most `attempts_max` times, counted from 1."""

    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(minutes=5)
    attempts_max: int = 8

    def __post_init__(self) -> None:
        if self.base <= timedelta(0):
            raise ConfigError("backoff base must be positive")
        if self.cap < self.base:
            raise ConfigError("backoff cap must not be shorter than the base")
        if not isfinite(self.factor) or self.factor < 1:
            raise ConfigError("backoff factor must be a number of 1 or more")
        if self.attempts_max < 1:
            raise ConfigError("backoff attempts_max must be 1 or more")

    def ceiling(self, attempt: int) -> timedelta:
        """Return the longest wait after the failed attempt number `attempt`."""
        if attempt < 1:
            raise ValueError("attempts count from 1")
        try:
            return min(self.cap, self.base * self.factor ** (attempt - 1))
        except OverflowError:
            return self.cap

    def delay(self, attempt: int, jitter: float) -> timedelta:
        """Return the wait after the failed attempt: `jitter`, in [0, 1), of the ceiling."""
        # Full jitter: the whole wait is drawn, so that those who failed together do not return
        # together.
        if not 0 <= jitter < 1:
            raise ValueError("jitter must be in [0, 1)")
        return self.ceiling(attempt) * jitter

    def exhausted(self, attempt: int) -> bool:
        """Tell whether the failed attempt number `attempt` was the last one."""
        return attempt >= self.attempts_max


def spread(number: int, attempt: int) -> float:
    """Return a share in [0, 1) for a numbered thing's attempt: the same whoever asks, and however often.

    One that were drawn anew at every look would sooner or later be short, and the wait with it.
    """
    return crc32(f"{number}:{attempt}".encode()) / 2**32
