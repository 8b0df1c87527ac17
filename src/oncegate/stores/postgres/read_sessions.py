"""Sessions that only read, kept between one look and the next: opening one takes longer than most pages.

Few are kept, none for long, and none that the server has ended meanwhile: a kept session is tried before it
is given out, and if it fails there a new one takes its place. Must never give out, or close, a session that
belongs to the process this one was forked from: both would talk over one socket.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

import psycopg
from msgspec import Struct

from oncegate.clock import SystemClock
from oncegate.stores.postgres.session import PostgresSession

KEPT_MAX: Final = 4  # at a time; more looks at once open sessions of their own
KEPT_MS_MAX: Final = 600_000  # after which a new one finds out where the server is today
_CLOCK: Final = SystemClock()  # only to count minutes
_of_parents: Final[list[PostgresSession]] = []  # held on to, so that nothing closes them here


class _Kept(Struct, frozen=True):
    session: PostgresSession
    opened_ms: int
    pid: int


class Looks:
    """The kept sessions of one store. Any thread may take one.

    `open_one` makes a session; `begin` starts a look on it, and raises psycopg.Error or returns False where
    it cannot serve.
    """

    def __init__(
        self, open_one: Callable[[], PostgresSession], begin: Callable[[PostgresSession], bool]
    ) -> None:
        self._open, self._begin = open_one, begin
        # Without a lock: a fork in the middle of anything must leave the child with a pool that works.
        self._idle: deque[_Kept] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def take(self) -> _Kept:
        """A session at the beginning of a look."""
        while (kept := _pop(self._idle)) is not None:
            if self._serves(kept):
                return kept
            kept.session.close()
        return _Kept(self._open(), _CLOCK.ticks_ms(), os.getpid())

    def give(self, kept: _Kept) -> None:
        """Takes a session back after its look, or closes it."""
        if kept.pid != os.getpid():
            _of_parents.append(kept.session)
        elif not kept.session.end_look() or len(self._idle) >= KEPT_MAX:
            kept.session.close()
        else:
            self._idle.append(kept)

    def close(self) -> None:
        """Closes those that are kept; later looks may keep others."""
        _close_all(self._idle)

    def _serves(self, kept: _Kept) -> bool:
        if _CLOCK.ticks_ms() - kept.opened_ms > KEPT_MS_MAX:
            return False
        try:
            return kept.session.is_connected() and self._begin(kept.session)
        except psycopg.Error:
            return False


def _pop(idle: deque[_Kept]) -> _Kept | None:
    """The one that was used last; those of a parent are put aside."""
    while idle:
        try:
            kept = idle.pop()
        except IndexError:  # another thread was quicker
            return None
        if kept.pid == os.getpid():
            return kept
        _of_parents.append(kept.session)
    return None


def _close_all(idle: deque[_Kept]) -> None:
    while (kept := _pop(idle)) is not None:
        kept.session.close()
