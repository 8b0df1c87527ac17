"""Fence history: which attempt held an entry under which fence, from when to when, and how it ended.

Told from what the ledger has on record. The claim of a new key writes no record of its own: its fence is
the entry's number and it began with the arrival. Every later claim has a record with its fence. Where a
ledger was written before there was such a record this says less: it never guesses a fence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.model.states import State
from oncegate.review.wording import happened
from oncegate.store import CLAIM_KINDS, ClaimNote, Entry, LogKind, LogRecord, read_claim_note
from oncegate.store.people import RULING_KINDS

HOLDS: Final = "holds it now"
OVERDUE: Final = "its lease lapsed; nobody has taken over yet"
TAKEN_OVER: Final = "its lease lapsed; taken over"
_CLAIMS: Final = frozenset(CLAIM_KINDS.values())
_PARKS: Final = frozenset({LogKind.HELD, LogKind.QUARANTINED})
ENDS: Final = frozenset(LogKind(state.value) for state in State if state is not State.IN_FLIGHT)


class Tenure(Struct, frozen=True):
    """One attempt's time with an entry. None is what is not on record; `ended` is in words for people."""

    attempt: int | None
    fence: int | None
    since_ms: int | None
    by: str = ""
    until_ms: int | None = None
    ended: str = ""


def tenures(entry: Entry, records: Sequence[LogRecord], *, is_lapsed: bool) -> list[Tenure]:
    """All attempts of an entry, the first one first; `is_lapsed` says that its present lease is over."""
    found = list(_told(entry, records))
    if found and not found[-1].ended and entry.state is State.IN_FLIGHT:
        found[-1] = replace(found[-1], ended=OVERDUE if is_lapsed else HOLDS)
    return found


def reserved(entry: Entry, records: Sequence[LogRecord]) -> str:
    """Under which fence a key was reserved on arrival, which has no record; empty where it was parked."""
    return "" if _was_parked(entry, records) else str(ClaimNote(1, entry.entry_id, is_first=False))


def _told(entry: Entry, records: Sequence[LogRecord]) -> Iterator[Tenure]:
    """Follows the records; an attempt is yielded once its end is known, the present one last.

    Held and quarantined may also be said of an entry without a holder: when its attempts are used up,
    or when its content is found twice. Any other end without a beginning is an attempt that has none.
    """
    held = None if _was_parked(entry, records) else Tenure(1, entry.entry_id, entry.received_at_ms)
    for record in records:
        if record.kind in _CLAIMS:
            if held is not None:
                yield replace(held, until_ms=record.at_ms, ended=TAKEN_OVER)
            held = _begun(record)
        elif record.kind in ENDS and (held is not None or record.kind not in _PARKS):
            yield _ended(held or Tenure(None, None, None), record)
            held = None
    if held is None and entry.state is State.IN_FLIGHT:
        held = Tenure(entry.attempt, entry.fence, None)
    if held is not None:
        yield held


def _was_parked(entry: Entry, records: Sequence[LogRecord]) -> bool:
    """Whether the key waited for a person from its first arrival on, so that no worker held it then.

    A handler may also hold an event in the very millisecond of its arrival. Then the attempt counts, until
    a person's word sets the count back; the next claim tells whether it was the first.
    """
    if not records or records[0].kind not in _PARKS or records[0].at_ms != entry.received_at_ms:
        return False
    notes = [record.note for record in records if record.kind in _CLAIMS]
    first = read_claim_note(notes[0]) if notes else None
    if first is not None:
        return first.is_first
    return entry.attempt == 0 or any(record.kind in RULING_KINDS for record in records)


def _begun(record: LogRecord) -> Tenure:
    claim = read_claim_note(record.note)
    attempt, fence = (None, None) if claim is None else (claim.attempt, claim.fence)
    return Tenure(attempt, fence, record.at_ms, record.actor)


def _ended(held: Tenure, record: LogRecord) -> Tenure:
    return replace(held, by=held.by or record.actor, until_ms=record.at_ms, ended=happened(record.kind))
