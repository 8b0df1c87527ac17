"""Plans that wait for a yes, and how far their jobs have come: kept in the ledger, for every process.

A plan made in one process can be confirmed in another, and its job be watched and cancelled in a third.
They are notices: a plan can be confirmed for an hour, and is shown for a day with what came of it. A job is
begun once, however many operators confirm it. Its work is in the ledger like any other decision.
"""

from __future__ import annotations

import secrets
import zlib
from enum import Enum
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.notice_operations import PostNotice
from oncegate.review.doubles import Choice, Doubles
from oncegate.store import LogKind, Note, Posting, Session

CONFIRM_WITHIN_MS: Final = 3_600_000
SHOWN_MS: Final = 24 * 3_600_000
CONFIRMABLE_MAX: Final = 50  # the oldest makes room; a plan that names most entries takes two megabytes
SHOWN_MAX: Final = 500
SILENCE_MS: Final = 30_000  # after which a job that runs is said to be silent
_SHEET, _TARGETS, _JOB, _CANCEL = "plan", "plan marks", "job", "job cancelled"

# An entry, its fence and the mark of its key; or a lane, the seq of its head and the mark of its name.
Target = tuple[int, int, bytes]


class PlanKind(Enum):
    """What a plan is about."""

    ENTRIES = "entries"
    LANES = "lanes"
    REPLAY = "deliveries"


class PlanLine(Struct, frozen=True):
    """One of the things that a plan names, as its sample shows it; a link where it has a page."""

    state: str
    text: str
    note: str
    entry_id: int | None = None
    fields: list[tuple[str, str]] = []


class Range(Struct, frozen=True):
    """What a replay of a destination is to send once more, and the nonce it goes under."""

    destination: str
    seq_from: int
    seq_to: int | None
    only_dead: bool
    nonce: int
    since_ms: int | None = None
    until_ms: int | None = None
    type: str | None = None


class PlanView(Struct, frozen=True):
    """A plan as it is shown before the yes.

    `extras` and `members` are entries that are the same change as another one (`review/doubles.py`).
    """

    kind: PlanKind
    owner: str
    tenant: str | None
    verb: str
    past: str
    reason: str
    effect: str
    command: str
    count: int
    surfaces: list[tuple[str, int]]
    is_complete: bool
    sample: list[PlanLine]
    replay: Range | None = None
    extras: list[int] = []
    members: list[int] = []

    @property
    def doubles(self) -> Doubles:
        """The entries that are the same change as another one."""
        return Doubles(frozenset(self.extras), frozenset(self.members))

    def left(self, choice: Choice) -> int:
        """How many a choice lets the word be said about."""
        return self.count - len(self.doubles.left_out(choice))

    def __str__(self) -> str:
        """What the journal says of it."""
        return f"{self.verb} {self.count} {self.kind.value}: {self.reason}"


class JobState(Enum):
    """What became of a plan after the yes; the values are words for people."""

    RUNNING = "running"
    ENDED = "ended"
    CANCELLED = "cancelled"
    BROKEN_OFF = "broken off"


class JobWord(Struct, frozen=True):
    """How far a job has come; `run` is its own number, so that its beginning can be told from another's."""

    run: int
    state: JobState
    total: int
    done: int = 0
    changed: int = 0
    refused: int = 0
    refusals: tuple[str, ...] = ()
    failure: str | None = None
    silent_ms: int = 0

    @property
    def is_silent(self) -> bool:
        """Whether it should have said something by now."""
        return self.state is JobState.RUNNING and self.silent_ms > SILENCE_MS


class Plans:
    """The plans and jobs of one ledger."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock

    def keep(self, sheet: PlanView, targets: tuple[Target, ...]) -> str:
        """Keeps a plan, with a record in the journal, and returns its name, which cannot be guessed."""
        name = secrets.token_urlsafe(12)
        packed = zlib.compress(msgspec.msgpack.encode(targets), level=1)
        with self._commits.transaction() as session:
            session.post(self._posting(_SHEET, name, msgspec.msgpack.encode(sheet)))
            posting = self._posting(_TARGETS, name, packed)
            session.post(replace(posting, keep_ms=CONFIRM_WITHIN_MS, kept_max=CONFIRMABLE_MAX))
            made = Note(
                0, LogKind.PLAN_MADE, self._clock.wall_ms(), sheet.owner or "page", str(sheet)[:300]
            )
            session.add_notes([made])
        return name

    def sheet(self, session: Session, name: str) -> PlanView | None:
        """A plan by its name."""
        for notice in session.notices(_SHEET, name):
            return msgspec.msgpack.decode(notice.body, type=PlanView)
        return None

    def targets(self, session: Session, name: str) -> tuple[Target, ...] | None:
        """All that a plan names; None once it is too old to be confirmed."""
        for notice in session.notices(_TARGETS, name):
            return msgspec.msgpack.decode(zlib.decompress(notice.body), type=tuple[Target, ...])
        return None

    def job(self, session: Session, name: str) -> JobWord | None:
        """How far a plan's job has come; None before the yes."""
        for notice in session.notices(_JOB, name):
            word = msgspec.msgpack.decode(notice.body, type=JobWord)
            return replace(word, silent_ms=notice.age_ms)
        return None

    def begin(self, name: str, total: int) -> JobWord | None:
        """Begins a job, once in all processes; None if it was begun before."""
        word = JobWord(secrets.randbits(62), JobState.RUNNING, total)
        posting = self._posting(_JOB, name, msgspec.msgpack.encode(word))
        is_first = self._commits.submit(PostNotice(replace(posting, must_be_first=True)))
        return word if is_first else None

    def tell(self, name: str, word: JobWord) -> None:
        """Says how far a job has come."""
        self._commits.submit(PostNotice(self._posting(_JOB, name, msgspec.msgpack.encode(word))))

    def cancel(self, name: str, actor: str) -> bool:
        """Asks the process that runs a job to stop after the part under way; False if asked before."""
        posting = self._posting(_CANCEL, name, actor.encode())
        return self._commits.submit(PostNotice(replace(posting, must_be_first=True)))

    def is_cancelled(self, name: str) -> bool:
        """Whether an operator wants a job to stop."""
        with self._commits.store.look(again=True) as session:
            return bool(session.notices(_CANCEL, name))

    def _posting(self, kind: str, name: str, body: bytes) -> Posting:
        return Posting(kind, name, "", body, self._clock.wall_ms(), SHOWN_MS, kept_max=SHOWN_MAX)
