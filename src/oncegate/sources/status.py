"""What a consumer says of itself in the ledger, and what operators say to it: pause and resume.

Status is a notice: replaced every few seconds, gone after a while. A pause is a document: it stays until
an operator resumes, also across restarts, and its change is in the journal.
"""

from __future__ import annotations

import os
import socket
from typing import Final

import msgspec
from msgspec import Struct

from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.registry_operations import ChangeDocument
from oncegate.errors import ConfigError, StoreBusy
from oncegate.store import Document, DocumentChange, Posting, Session

KIND: Final = "source"  # of the notices and of the documents
SAY_EVERY_SECONDS: Final = 5.0
KEPT_MS: Final = 24 * 3_600_000  # how long a consumer that ended is remembered
CONSUMERS_MAX: Final = 1_000
STALE_MS: Final = 30_000  # a consumer that said nothing for so long is not running
ERROR_LENGTH_MAX: Final = 300
_TRIES_MAX: Final = 5

RUNNING, PAUSED, LEDGER_AWAY, RESTING, UNREACHABLE, STOPPED, DRAINING, ENDED = (
    "running", "paused", "ledger away", "downstream rests", "unreachable", "stopped", "draining", "ended",
)  # fmt: skip


class SourceStatus(Struct, frozen=True, kw_only=True):
    """One consumer as it stands. Numbers are since its start."""

    surface: str
    kind: str = ""
    server: str = ""
    queue: str = ""
    state: str = RUNNING
    lag: int | None = None
    in_flight: int = 0
    oldest_ms: int = 0
    received: int = 0
    acknowledged: int = 0
    given_back: int = 0
    redelivered: int = 0
    poison: int = 0
    let_go: int = 0
    acks_lost: int = 0
    not_kept: int = 0
    last_error: str | None = None
    last_error_at_ms: int | None = None
    started_at_ms: int = 0
    warnings: tuple[str, ...] = ()


class SeenSource(Struct, frozen=True):
    """A consumer's status as read from the ledger."""

    name: str
    writer: str
    status: SourceStatus
    age_ms: int

    @property
    def is_silent(self) -> bool:
        """Whether it should have said something by now."""
        return self.age_ms > STALE_MS and self.status.state != ENDED


class SourcePause(Struct, frozen=True):
    """Why a source is paused, and by whom."""

    by: str
    why: str
    at_ms: int


def writer_here() -> str:
    """This process, as a writer of notices."""
    return f"{socket.gethostname()[:80]}, process {os.getpid()}"


def posting_of(name: str, status: SourceStatus, at_ms: int) -> Posting:
    """The status as a notice."""
    body = msgspec.json.encode(status)
    return Posting(KIND, name, writer_here(), body, at_ms, KEPT_MS, kept_max=CONSUMERS_MAX)


def read_sources(session: Session) -> list[SeenSource]:
    """All consumers that any process has told of in the last day, by name."""
    return [
        SeenSource(one.name, one.writer, msgspec.json.decode(one.body, type=SourceStatus), one.age_ms)
        for one in session.notices(KIND)
    ]


def read_pauses(session: Session) -> dict[str, SourcePause]:
    """The sources that are paused."""
    return {one.name: pause for one in session.documents(KIND) if (pause := pause_in(one)) is not None}


def pause_in(document: Document | None) -> SourcePause | None:
    """The pause that a document holds."""
    return None if document is None else msgspec.json.decode(document.body, type=SourcePause)


def change_pause(
    commits: GroupCommit, name: str, pause: SourcePause | None, *, actor: str, at_ms: int
) -> bool:
    """Pauses or resumes a source; False where it is so already. One record in the journal."""
    for _ in range(_TRIES_MAX):
        with commits.store.look() as session:
            found = session.document(KIND, name)
        if (found is None) == (pause is None):
            return False
        body = None if pause is None else msgspec.json.encode(pause)
        note = f"source {name} resumed" if pause is None else f"source {name} paused: {pause.why}"
        change = DocumentChange(KIND, name, 0 if found is None else found.version, body, at_ms, actor, note)
        if commits.submit(ChangeDocument(change)):
            return True
    raise StoreBusy(f"source {name} was changed by others at the same time; try again")


def check_known(name: str, known: set[str]) -> None:
    """Refuses the name of a source that no consumer has told of."""
    if name not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"no consumer of a source {name[:80]!r} has reported; known: {listed}")
