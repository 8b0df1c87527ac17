"""Waiting for a condition, with a deadline: what tests do instead of sleeping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncegate.clock import SystemClock

DEADLINE_SECONDS: Final = 60.0  # for what hangs: a slow and busy machine needs less
LOOK_SECONDS_MIN: Final = 0.001
LOOK_SECONDS_MAX: Final = 0.02  # what takes long is not worth a thousand looks a second


def wait_until(
    condition: Callable[[], object], *, what: str = "the condition", seconds: float = DEADLINE_SECONDS
) -> None:
    """Returns as soon as `condition` is true; raises TimeoutError naming `what` after the deadline."""
    clock = SystemClock()
    deadline_ms = clock.ticks_ms() + int(seconds * 1000)
    pause_seconds = LOOK_SECONDS_MIN
    while not condition():
        if clock.ticks_ms() > deadline_ms:
            raise TimeoutError(f"{what} has not come true within {seconds} s")
        clock.pause(pause_seconds)
        pause_seconds = min(pause_seconds * 1.2, LOOK_SECONDS_MAX)
