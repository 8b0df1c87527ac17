"""Waiting for a condition, with a deadline: what tests do instead of sleeping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncegate.clock import SystemClock

DEADLINE_SECONDS: Final = 60.0  # for what hangs: a slow and busy machine needs less
LOOK_EVERY_SECONDS: Final = 0.001


def wait_until(
    condition: Callable[[], object], *, what: str = "the condition", seconds: float = DEADLINE_SECONDS
) -> None:
    """Returns as soon as `condition` is true; raises TimeoutError naming `what` after the deadline."""
    clock = SystemClock()
    deadline_ms = clock.ticks_ms() + int(seconds * 1000)
    while not condition():
        if clock.ticks_ms() > deadline_ms:
            raise TimeoutError(f"{what} has not come true within {seconds} s")
        clock.pause(LOOK_EVERY_SECONDS)
