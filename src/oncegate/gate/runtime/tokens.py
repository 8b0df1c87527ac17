"""Random tokens, one for each request: drawn from the system many at a time, because every event needs one.

Must never hand out a number twice, also not on the two sides of a fork.
"""

from __future__ import annotations

import os
from array import array
from typing import Final

from oncegate.commit.forks import here

DRAWN_AT_ONCE: Final = 256
_LARGEST: Final = 2**63 - 1  # what every store keeps as an integer


class Tokens:
    """Hands out random numbers of 63 bits; safe to share between threads."""

    __slots__ = ("_left", "_pid")

    def __init__(self) -> None:
        self._left: list[int] = []
        self._pid = here.pid

    def __call__(self) -> int:
        """A number that no other process has."""
        if self._pid != here.pid:  # forked: what is left is the parent's as well
            self._left, self._pid = [], here.pid
        try:
            return self._left.pop() & _LARGEST
        except IndexError:
            drawn = array("Q", os.urandom(8 * DRAWN_AT_ONCE)).tolist()
            token = drawn.pop() & _LARGEST
            self._left = drawn
            return token
