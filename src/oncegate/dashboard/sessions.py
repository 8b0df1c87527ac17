"""Sessions that were ended before their time: kept in the ledger, so that every process knows at once.

Signing in writes nothing: a session is a signed cookie. Ending one writes its id into the document of its
operator until the session would have been over anyway. Ending all of them counts the generation up, which
every cookie names. Must never grow without end: with too many ids the generation counts up instead.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.registry_operations import ChangeDocument
from oncegate.errors import StoreBusy
from oncegate.store import DocumentChange, LogKind, Session

KIND: Final = "page-sessions"
ENDED_MAX: Final = 64
TRIES_MAX: Final = 5


class Endings(Struct, frozen=True):
    """What of one operator's sessions is over: all of an earlier generation, and those named."""

    generation: int = 0
    ended: dict[str, int] = {}

    def has_ended(self, generation: int, session_id: str) -> bool:
        """Whether a session is over."""
        return generation != self.generation or session_id in self.ended

    def with_one(self, session_id: str, until_ms: int, now_ms: int) -> Endings:
        """The same with one more; those whose time is over anyway are forgotten."""
        left = {name: until for name, until in self.ended.items() if until > now_ms}
        left[session_id] = until_ms
        return self.with_all() if len(left) > ENDED_MAX else Endings(self.generation, left)

    def with_all(self) -> Endings:
        """The same with every session there is now."""
        return Endings(self.generation + 1)


def endings_of(session: Session, name: str) -> Endings:
    """What of an operator's sessions is over."""
    document = session.document(KIND, name)
    return Endings() if document is None else msgspec.json.decode(document.body, type=Endings)


class SessionBook:
    """Ends sessions, with one log record each."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits, self._clock = commits, clock

    def end(self, name: str, session_id: str, until_ms: int, note: str) -> None:
        """Ends one session of an operator; raises StoreError where that cannot be written."""
        for _ in range(TRIES_MAX):
            version, before = self._read(name)
            now_ms = self._clock.wall_ms()
            if self._write(name, version, before.with_one(session_id, until_ms, now_ms), name, note):
                return
        raise StoreBusy(f"the sessions of {name!r} are being changed by others; try again")

    def end_all(self, name: str, actor: str, note: str) -> None:
        """Ends every session of an operator; raises StoreError where that cannot be written."""
        for _ in range(TRIES_MAX):
            version, before = self._read(name)
            if self._write(name, version, before.with_all(), actor, note):
                return
        raise StoreBusy(f"the sessions of {name!r} are being changed by others; try again")

    def _read(self, name: str) -> tuple[int, Endings]:
        with self._commits.store.look() as session:
            document = session.document(KIND, name)
        if document is None:
            return 0, Endings()
        return document.version, msgspec.json.decode(document.body, type=Endings)

    def _write(self, name: str, version: int, after: Endings, actor: str, note: str) -> bool:
        body = msgspec.json.encode(after)
        change = DocumentChange(
            KIND, name, version, body, self._clock.wall_ms(), actor, note[:300], LogKind.SIGNED_OUT
        )
        return self._commits.submit(ChangeDocument(change))
