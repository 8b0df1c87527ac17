"""Fence history where a ledger was written before retries had a record: it says less and never guesses."""

from __future__ import annotations

import pytest

from oncegate.model.states import State
from oncegate.review.lease_history import HOLDS, TAKEN_OVER, tenures
from oncegate.store import ClaimNote, Entry, LogKind, LogRecord, read_claim_note

BORN = 1_000


def _entry(state: State, attempt: int, fence: int) -> Entry:
    return Entry(
        7, b"key", "", "orders", "o-1", state, attempt, fence, None, b"print", BORN, None, None, None
    )


def _told(
    entry: Entry, *records: tuple[LogKind, int, str | None]
) -> list[tuple[int | None, int | None, str]]:
    log = [
        LogRecord(place, entry.entry_id, kind, at, "gate", note)
        for place, (kind, at, note) in enumerate(records)
    ]
    return [(one.attempt, one.fence, one.ended) for one in tenures(entry, log, is_lapsed=False)]


def test_an_old_retry_is_told_without_its_fence():
    entry = _entry(State.COMMITTED, 2, 9)
    found = _told(entry, (LogKind.RETRYABLE, 1_005, "timeout"), (LogKind.COMMITTED, 2_000, None))
    assert found == [(1, 7, "attempt failed, may be tried again"), (None, None, "committed")]


def test_an_old_retry_that_runs_is_told_with_the_fence_that_stands():
    entry = _entry(State.IN_FLIGHT, 2, 9)
    assert _told(entry, (LogKind.RETRYABLE, 1_005, "timeout"))[-1] == (2, 9, HOLDS)


def test_an_old_take_over_has_no_fence():
    entry = _entry(State.COMMITTED, 2, 9)
    found = _told(entry, (LogKind.RECOVERED, 1_500, None), (LogKind.COMMITTED, 2_000, None))
    assert found == [(1, 7, TAKEN_OVER), (None, None, "committed")]


def test_what_was_released_and_ran_before_there_were_records_had_no_holder_at_first():
    entry = _entry(State.COMMITTED, 1, 9)
    records = [(LogKind.QUARANTINED, BORN, "skew"), (LogKind.RELEASED, 1_500, "fine")]
    assert _told(entry, *records, (LogKind.COMMITTED, 2_000, None)) == [(None, None, "committed")]


def test_a_content_duplicate_that_is_stopped_while_nobody_holds_it_ends_no_attempt():
    entry = _entry(State.QUARANTINED, 1, 7)
    records = [(LogKind.RETRYABLE, 1_005, "timeout"), (LogKind.QUARANTINED, 1_500, "content duplicate")]
    assert len(_told(entry, *records)) == 1


@pytest.mark.parametrize(
    "note", [None, "", "attempt 2", "attempt 2 under fence 9 ", "attempt x under fence 9"]
)
def test_what_is_no_claim_note_is_not_read_as_one(note):
    assert read_claim_note(note) is None


def test_a_claim_note_is_read_as_it_was_written():
    for note in (ClaimNote(3, 2**62, is_first=False), ClaimNote(1, 9, is_first=True)):
        assert read_claim_note(str(note)) == note
