"""Incarnations of a ledger: a failover or a restore may have taken it back under a living process.

A store tells which ledger it sees whenever it opens a connection for writing. If that is another one than
before, or an older state of the same one, everything that this process remembers is dropped before anything
is answered or written, and what it knows of lost events is handed to the new ledger.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from oncegate.store.ledger import ClaimSession

WENT_BACK: str = "went_back"  # the kind of the registry's documents about it
# Documents about each virtual shard, where `oncegate reshard` moved keys: a copy not used yet; not here.
HOME: Final = "home"
ARRIVED: Final = b"arrived"
GONE: Final = b"gone"


class Sight(NamedTuple):
    """What names a ledger's incarnation, and a number that grows while it is written."""

    identity: str
    position: int


class IncarnationChange(Struct, frozen=True):
    """A ledger that is not the one that was seen before."""

    before: Sight
    after: Sight


class Rememberer(Protocol):
    """Remembers what a ledger said; a gate is one."""

    def forget(self) -> None:
        """Drops what was remembered of the ledger; never raises."""

    def misses(self, session: ClaimSession) -> bool:
        """Tells whether the ledger has lost something that this process saw committed."""

    def restore(self, session: ClaimSession, change: IncarnationChange) -> None:
        """Compares memory with the ledger as it is now, and writes down what is in doubt."""


class Incarnations:
    """Which incarnation a process has seen, shared by the sessions of one store.

    Sessions ask side by side, and an older answer may come later: positions may differ by `slack`.
    """

    def __init__(self, slack: int = 0) -> None:
        self._slack = slack
        self._lock = threading.RLock()
        self._sight: Sight | None = None
        self._rememberers: list[Rememberer] = []
        self.generation = 0
        self.guard: Callable[[Any], None] | None = None  # refuses a ledger when a process first meets it

    @property
    def identity(self) -> str | None:
        """The incarnation that was seen last; None before the first connection."""
        return None if self._sight is None else self._sight.identity

    def attach(self, rememberer: Rememberer) -> None:
        """Notifies the rememberer from now on when the ledger has gone back."""
        with self._lock:
            self._rememberers.append(rememberer)

    def detach(self, rememberer: Rememberer) -> None:
        """Notifies the rememberer no more."""
        with self._lock:
            if rememberer in self._rememberers:
                self._rememberers.remove(rememberer)

    def note(self, position: int) -> None:
        """A session has seen this position."""
        with self._lock:
            if self._sight is not None and position > self._sight.position:
                self._sight = self._sight._replace(position=position)

    def is_same(self, sight: Sight) -> bool:
        """Tells whether this is the incarnation that was seen, and not an older state of it."""
        with self._lock:
            seen = self._sight
            if seen is None or sight.identity != seen.identity:
                return False
            if sight.position + self._slack < seen.position:
                return False
            self.note(sight.position)
            return True

    def check(self, sight: Sight, opened: Callable[[], ClaimSession]) -> None:
        """Compares what is seen over a new connection; who comes meanwhile waits.

        `opened` gives a session on that connection. If something fails, the next connection tries again.
        """
        with self._lock:
            before = self._sight
            if before is not None:
                self._compare(IncarnationChange(before, sight), opened())
            self._sight = sight

    def admit(self, session: object) -> None:
        """Lets the guard look at the ledger, until it has let it pass once; for readers too."""
        guard = self.guard  # another thread may take it away meanwhile
        if guard is not None:
            guard(session)
            self.guard = None

    def _compare(self, change: IncarnationChange, session: ClaimSession) -> None:
        before, after = change.before, change.after
        is_other = after.identity != before.identity or after.position + self._slack < before.position
        if is_other or _any_misses(self._rememberers, session):
            self.generation += 1
            self._hand_over(change, session)

    def _hand_over(self, change: IncarnationChange, session: ClaimSession) -> None:
        for rememberer in self._rememberers:
            rememberer.forget()
        for rememberer in self._rememberers:
            rememberer.restore(session, change)


def _any_misses(asked: Sequence[Rememberer], session: ClaimSession) -> bool:
    return any(rememberer.misses(session) for rememberer in asked)


def home_in(session: Any, key: bytes) -> bytes | None:
    """What a ledger says of a key's virtual shard; None where no key was ever moved."""
    read = getattr(session, "document", None)
    found = None if read is None else read(HOME, key.hex()[:3])
    return None if found is None else bytes(found.body)
