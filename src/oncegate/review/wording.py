"""Entries and log records in words, the same on pages and in the terminal."""

from __future__ import annotations

from typing import Final

from oncegate.model.states import State
from oncegate.store import EntryDetail, LogKind, LogRecord

MEANINGS: Final = {
    State.IN_FLIGHT: "a worker holds the key",
    State.COMMITTED: "done; every later arrival gets the recorded outcome",
    State.FAILED: "failed permanently; every later arrival gets the recorded failure",
    State.RETRYABLE: "tried without success; the next arrival or a reconciler tries again",
    State.UNKNOWN: "an effect may or may not have happened; a person must find out at the downstream",
    State.HELD: "waits for a person; nothing runs until then",
    State.QUARANTINED: "kept, but not run; the reason says what is wrong with the event",
}
_DECIDED: Final = {
    LogKind.APPROVED: "approved; a reconciler or the next arrival runs it",
    LogKind.RELEASED: "released from quarantine; a reconciler or the next arrival runs it",
    LogKind.RUN_AGAIN: "failed before, and set to run again; a reconciler or the next arrival runs it",
}
_TRIED: Final = frozenset(
    {LogKind.RETRYABLE, LogKind.RECOVERED, LogKind.TAKEN_UP, LogKind.UNKNOWN, LogKind.HELD}
)
LAPSED: Final = "its worker's lease expired; the next arrival or a reconciler finds out what happened"

_HAPPENED: Final = {
    LogKind.PROBED: "downstream asked",
    LogKind.TAKEN_UP: "taken up again",
    LogKind.COMMITTED: "committed",
    LogKind.FAILED: "failed for good",
    LogKind.RETRYABLE: "attempt failed, may be tried again",
    LogKind.UNKNOWN: "left in doubt",
    LogKind.HELD: "held for a person",
    LogKind.QUARANTINED: "quarantined",
    LogKind.CONFLICT: "another content arrived under this key and was refused",
    LogKind.RECOVERED: "taken over after an expired lease",
    LogKind.APPROVED: "approved: may run",
    LogKind.REJECTED: "rejected for good",
    LogKind.RELEASED: "released from quarantine: may run",
    LogKind.DISCARDED: "discarded for good",
    LogKind.RUN_AGAIN: "failed before: may run again",
    LogKind.SECOND_RESOURCE: "second resource",
    LogKind.DUPLICATE: "found to be a content duplicate",
    LogKind.DISMISSED: "pair of equal changes decided",
    LogKind.FORGOTTEN: "forgotten after their retention",
    LogKind.DOCUMENT_CHANGED: "settings changed",
    LogKind.REVEALED: "content looked at",
    LogKind.REFUSED: "refused: the role does not allow it",
    LogKind.PLAN_MADE: "a plan for many was made",
    LogKind.JOB_STARTED: "a plan for many was carried out",
    LogKind.JOB_CANCELLED: "a job was cancelled",
    LogKind.SIGNED_IN: "signed in",
    LogKind.SIGN_IN_REFUSED: "refused to sign in",
    LogKind.SIGNED_OUT: "signed out",
    LogKind.ERASED: "content erased",
    LogKind.CONTENT_PRUNED: "content removed after its retention",
    LogKind.KEY_INTRODUCED: "signing key of the journal introduced",
    LogKind.DEAD_LETTERED: "given up after all attempts: a dead letter",
    LogKind.HEAD_RETRIED: "blocked event sent again",
    LogKind.HEAD_SKIPPED: "event left out permanently",
    LogKind.REPLAY_STARTED: "past events sent once more",
    LogKind.REPLAY_CANCELLED: "replay taken back",
    LogKind.DESTINATION_PAUSED: "destination paused",
    LogKind.DESTINATION_DISABLED: "destination disabled",
    LogKind.DESTINATION_RESUMED: "destination resumed",
}


CRASHED: Final = "the attempt before had crashed or stalled; its effect may have started"


def told(record: LogRecord) -> str:
    """What a log record says beside what happened: its note, and for a take-over why there was one."""
    if record.kind is not LogKind.RECOVERED:
        return record.note or ""
    return "; ".join(part for part in (record.note, CRASHED) if part)


def meaning(seen: EntryDetail, *, is_lapsed: bool) -> str:
    """What an entry's state means, with what a person decided about it since it was last tried."""
    if is_lapsed:
        return LAPSED
    if seen.entry.state is State.RETRYABLE:
        for record in reversed(seen.records):
            if record.kind in _DECIDED:
                return _DECIDED[record.kind]
            if record.kind in _TRIED:
                break
    return MEANINGS[seen.entry.state]


def happened(kind: LogKind) -> str:
    """What a log record tells."""
    return _HAPPENED.get(kind, kind.name.lower())
