"""The log: one record for every settlement and decision, read in the order of commits."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from oncegate.model.states import Decision, Stored


class LogKind(Stored):
    """What a log record tells. The numbers are stored; never renumber."""

    PROBED = 0  # a downstream was asked what the key owns; the note says what it answered
    TAKEN_UP = 1  # tried again after an attempt that failed, under a new fence
    COMMITTED = 2
    FAILED = 3
    RETRYABLE = 4
    UNKNOWN = 5
    HELD = 6
    QUARANTINED = 7
    CONFLICT = 8
    RECOVERED = 9
    FORGOTTEN = 10
    DOCUMENT_CHANGED = 30
    APPROVED = 11
    REJECTED = 12
    RELEASED = 13
    DISCARDED = 14
    REVEALED = 15  # somebody looked at an event's content; for pages that show it
    REFUSED = 16  # somebody asked for what their role does not let them do
    JOB_STARTED = 17  # somebody said yes to a plan for many; each decision has a record of its own
    JOB_CANCELLED = 18
    PLAN_MADE = 19  # somebody asked what a word for many would do; nothing is changed before the yes
    DEAD_LETTERED = 20
    HEAD_RETRIED = 21
    HEAD_SKIPPED = 22
    REPLAY_STARTED = 23
    REPLAY_CANCELLED = 24
    DESTINATION_PAUSED = 25
    DESTINATION_DISABLED = 26
    DESTINATION_RESUMED = 27
    RUN_AGAIN = 28  # a person lets an entry that failed run again
    DUPLICATE = 40
    DISMISSED = 41
    SECOND_RESOURCE = 42  # a downstream gave another resource for the same key or target
    WENT_BACK = 43  # the ledger went back in time under a living process; the note says what is missing
    SIGNED_IN = 50
    SIGN_IN_REFUSED = 51
    SIGNED_OUT = 52
    ERASED = 60  # an entry's event and outcome were removed on request; the note says why
    CONTENT_PRUNED = 61  # events and outcomes were removed after their payload retention
    KEY_INTRODUCED = 62  # another key signs the journal from now on; the note is its verifier key


_BY_NUMBER: Final = {kind.value: kind for kind in LogKind}


def kind_of(number: Any) -> LogKind:
    """The kind that a ledger keeps as this number; raises StoreCorrupt for one that was never given out."""
    found = _BY_NUMBER.get(number)  # a quarter of the time that the enumeration takes
    return LogKind(number) if found is None else found


class LogRecord(Struct, frozen=True):
    """One line of the log. `position` orders it: a reader that follows positions misses nothing.

    `entry_id` is the entry it is about; 0 where it is about none, and -n where it is about lane n.
    """

    position: int
    entry_id: int
    kind: LogKind
    at_ms: int
    actor: str
    note: str | None


# What tells of a claim on a known key.
CLAIM_KINDS: Final = {Decision.RETRY: LogKind.TAKEN_UP, Decision.RECOVER: LogKind.RECOVERED}
_CLAIM_NOTE: Final = re.compile(r"(first )?attempt (\d{1,19}) under fence (\d{1,19})")


class ClaimNote(NamedTuple):
    """What the log says of a claim on a known key, so that it can be told who held which fence.

    Attempts count from zero after a person's decision; `is_first` says that no worker held the key before.
    """

    attempt: int
    fence: int
    is_first: bool

    def __str__(self) -> str:
        return f"{'first ' if self.is_first else ''}attempt {self.attempt} under fence {self.fence}"


def read_claim_note(note: str | None) -> ClaimNote | None:
    """A claim's note as it was written; None for records of ledgers before there were any."""
    found = _CLAIM_NOTE.fullmatch(note or "")
    return None if found is None else ClaimNote(int(found[2]), int(found[3]), found[1] is not None)


class Log(Protocol):
    """The commit-ordered record."""

    def read_log(self, after: int, limit: int) -> list[LogRecord]:
        """Returns records after a position, oldest first; never passes one that may still commit."""
