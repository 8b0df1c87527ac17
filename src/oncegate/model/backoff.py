"""How long to wait before trying again.

Called by the sender and by the gate's retries. Must never draw a random number or read a clock: the
jitter is passed in, so that a test or a simulation sees the same schedule every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from math import isfinite
from typing import Final
from zlib import crc32

from oncegate.errors import ConfigError

CERTAIN_CAP: Final = timedelta(seconds=30)  # the longest wait after an attempt that certainly did nothing
OUTER_HORIZONS: Final = 7  # so many horizons after its first attempt an event goes to a person in any case
OUTER_MIN: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential growth from `base` up to `cap`; each wait is longer by a random share of `jitter`.

    Retries end after `retry_for`, the sum of the waits without jitter, or after `attempts_max` attempts,
    whichever is first; None is no limit. Attempts count from 1.
    """

    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(minutes=5)
    attempts_max: int | None = None
    retry_for: timedelta | None = timedelta(days=1)
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if self.base <= timedelta(0):
            raise ConfigError("backoff base must be positive")
        if self.cap < self.base:
            raise ConfigError("backoff cap must not be shorter than the base")
        if not isfinite(self.factor) or self.factor < 1:
            raise ConfigError("backoff factor must be a number of 1 or more")
        if self.attempts_max is not None and self.attempts_max < 1:
            raise ConfigError("backoff attempts_max must be 1 or more")
        if self.retry_for is not None and self.retry_for < timedelta(0):
            raise ConfigError("backoff retry_for must not be negative")
        if not 0 <= self.jitter <= 1:
            raise ConfigError("backoff jitter must be between 0 and 1")

    def ceiling(self, attempt: int) -> timedelta:
        """Return the wait after the failed attempt number `attempt`, without jitter."""
        if attempt < 1:
            raise ValueError("attempts count from 1")
        try:
            return min(self.cap, self.base * self.factor ** (attempt - 1))
        except OverflowError:
            return self.cap

    def delay(self, attempt: int, share: float) -> timedelta:
        """Return the wait after the failed attempt: the ceiling, and `share`, in [0, 1), of the jitter."""
        if not 0 <= share < 1:
            raise ValueError("share must be in [0, 1)")
        ceiling = self.ceiling(attempt)
        try:
            return ceiling * (1 + self.jitter * share)
        except OverflowError:
            return ceiling

    def delay_after_nothing(self, waited: timedelta, share: float) -> timedelta:
        """Return the wait after an attempt that certainly did nothing: as long as it was waited so far.

        Such an attempt does not count, so the wait grows with time: it doubles from `base` to 30 s.
        """
        wait = max(self.base, min(waited, self.cap, CERTAIN_CAP))
        return wait * (1 + self.jitter * share)

    @property
    def attempts_within(self) -> int | None:
        """How many attempts fit into both limits; None where there is none."""
        limits = [self.attempts_max, None if self.retry_for is None else _attempts_within(self)]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def outer(self) -> timedelta:
        """When even attempts that certainly did nothing end: a person has seen the outage long before."""
        return max(OUTER_MIN, (self.retry_for or timedelta(0)) * OUTER_HORIZONS)

    def exhausted(self, attempt: int) -> bool:
        """Tell whether the failed attempt number `attempt` was the last one."""
        limit = self.attempts_within
        return limit is not None and attempt >= limit


@lru_cache(maxsize=256)
def _attempts_within(backoff: Backoff) -> int:
    """Return how many attempts fit into `retry_for`: the first at 0, each further one after its wait."""
    left, attempt = backoff.retry_for or timedelta(0), 1
    while (wait := backoff.ceiling(attempt)) <= left:
        if wait == backoff.ceiling(attempt + 1):
            return attempt + left // wait
        left -= wait
        attempt += 1
    return attempt


def spread(number: int, attempt: int) -> float:
    """Return a share in [0, 1) for a numbered thing's attempt: the same for every caller and every call.

    A share drawn at every call would sooner or later be small, and the wait short.
    """
    return crc32(f"{number}:{attempt}".encode()) / 2**32
