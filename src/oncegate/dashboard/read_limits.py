"""How many requests of the page look at the ledger at a time, and who gets that far.

A request without a session of this ledger is turned away by its cookie alone. The others look at the ledger
in a few threads; a bounded number waits for one, and more are refused. Must never take a cookie for a
session: only the ledger says whether one has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from oncegate.clock import Clock
from oncegate.dashboard.auth import is_signed, session_key
from oncegate.store import Session

T = TypeVar("T")

LOOKS_MAX: Final = 8  # at a time in one event loop; each may hold a connection to PostgreSQL
WAITING_MAX: Final = 64
ASK_AGAIN_MS: Final = 10_000  # a ledger that was restored may have another key

_places: Final[RunVar[CapacityLimiter]] = RunVar("oncegate-page-looks")


class TooMany(Exception):
    """So many requests wait for the ledger that one more would wait for too long."""


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Runs what looks at the ledger; raises TooMany where too many wait."""
    places = _places.get(None)
    if places is None:
        places = CapacityLimiter(LOOKS_MAX)
        _places.set(places)
    if places.statistics().tasks_waiting >= WAITING_MAX:
        raise TooMany
    return await to_thread.run_sync(partial(function, *arguments), limiter=places)


class Strangers:
    """Tells strangers by their cookie, with the ledger's key as it was read last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key: bytes | None = None
        self._read_at_ms = 0

    def learn(self, session: Session) -> None:
        """Reads the ledger's key, now and then: every request that gets to the ledger passes here."""
        if self._key is None or self._is_old():
            self.renew(session)

    def renew(self, session: Session) -> bytes:
        """Reads the ledger's key, which new sessions are signed with."""
        self._read_at_ms = self._clock.ticks_ms()
        self._key = session_key(session)
        return self._key

    def has(self, cookie: str) -> bool:
        """Whether a cookie is certainly none of ours."""
        if not cookie:
            return True
        if self._key is None or is_signed(self._key, cookie):
            return False
        return not self._is_old()

    def _is_old(self) -> bool:
        return self._clock.ticks_ms() - self._read_at_ms > ASK_AGAIN_MS
