"""How long ending may take: all of it within `drain_within`, whatever hangs.

Requests and deliveries under way have nearly all of that time, side by side; a little is kept for writing
down what is left. What is not over by then is ended as by a crash, which loses nothing: it is found in
flight and looked into.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from msgspec import Struct

RESERVE_SECONDS_MAX: Final = 2.0
NOT_FINISHED: Final = 1

log: Final = logging.getLogger("oncegate.service")


class StopTimes(Struct, frozen=True):
    """The parts of the time there is, in seconds."""

    whole: float

    @property
    def work(self) -> float:
        """For requests and deliveries under way."""
        return self.whole - self.reserve

    @property
    def reserve(self) -> float:
        """For the worker, what was gathered, and closing the ledger."""
        return min(RESERVE_SECONDS_MAX, self.whole / 4)


def end_within(seconds: float, leave: Callable[[int], None] = os._exit) -> threading.Timer:
    """Ends the process after so long, if it has not ended by itself; from a signal's handler."""
    timer = threading.Timer(seconds, _leave, (seconds, leave))
    timer.daemon = True
    timer.start()
    return timer


def _leave(seconds: float, leave: Callable[[int], None]) -> None:
    log.warning("not over within %g s: what is in flight is looked into as after a crash", seconds)
    leave(NOT_FINISHED)
