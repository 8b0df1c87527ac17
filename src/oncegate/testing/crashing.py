"""Crash points that do crash: the process is killed, an error raised, or anything a test wants.

Hand one to a `Gate`. Every name that was reached is counted, so that a test can show that its crash point
really fired.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Final

from oncegate.crashpoints import (
    ALL_CRASH_POINTS,
    HISTORY_CRASH_POINTS,
    RESHARD_CRASH_POINTS,
    SEAL_CRASH_POINTS,
    CrashPoints,
)

KNOWN: Final = {**ALL_CRASH_POINTS, **HISTORY_CRASH_POINTS, **SEAL_CRASH_POINTS, **RESHARD_CRASH_POINTS}


class CrashReached(BaseException):
    """Raised by `ArmedCrashPoints.raising`; not an Exception, so that no handler swallows it."""


def kill_this_process(name: str) -> None:
    """Ends the process at once, with nothing flushed and nothing closed."""
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(name: str) -> None:
    raise CrashReached(name)


class ArmedCrashPoints(CrashPoints):
    """Does `action` the `occurrence`-th time that `name` is reached."""

    def __init__(
        self, name: str, action: Callable[[str], None] = kill_this_process, *, occurrence: int = 1
    ) -> None:
        if name not in KNOWN:
            raise ValueError(f"{name!r} is not a crash point; known: {', '.join(KNOWN)}")
        self.reached: Counter[str] = Counter()
        self._name = name
        self._action = action
        self._occurrence = occurrence

    @classmethod
    def raising(cls, name: str, *, occurrence: int = 1) -> ArmedCrashPoints:
        """Raises CrashReached instead of killing."""
        return cls(name, _raise, occurrence=occurrence)

    def hit(self, name: str) -> None:
        """Counts, and acts if this is the one."""
        if name not in KNOWN:
            raise ValueError(f"{name!r} is not a crash point")
        self.reached[name] += 1
        if name == self._name and self.reached[name] == self._occurrence:
            self._action(name)
