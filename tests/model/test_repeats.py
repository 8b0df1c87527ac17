"""Every repeat has one class, with evidence that names no value."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.model.repeats import (
    LATE_AFTER_MS,
    RETRY_WITHIN_MS,
    RUN_MIN,
    SPLIT_WITHIN_MS,
    TWINS_MAX,
    Harm,
    OrderedRun,
    RepeatClass,
    Twin,
    classify,
    classify_twin,
)
from oncegate.model.states import Decision

MINUTE = 60_000
NO_RUN = OrderedRun()


def run_of(entries: list[int]) -> OrderedRun:
    run = OrderedRun()
    for entry in entries:
        run = run.with_repeat(entry, 1_000 * entry)
    return run


@pytest.mark.parametrize(
    ("decision", "age_ms", "expected"),
    [
        (Decision.REPLAY, 0, RepeatClass.EXPECTED_REPLAY),
        (Decision.REPLAY, LATE_AFTER_MS, RepeatClass.EXPECTED_REPLAY),
        (Decision.REPLAY, LATE_AFTER_MS + 1, RepeatClass.LATE_REPLAY),
        (Decision.REPLAY, 11 * 24 * 60 * MINUTE, RepeatClass.LATE_REPLAY),
        (Decision.REPLAY, -5, RepeatClass.EXPECTED_REPLAY),
        (Decision.BUSY, 10, RepeatClass.RACE),
        (Decision.BUSY, LATE_AFTER_MS * 2, RepeatClass.RACE),
        (Decision.CONFLICT, 10, RepeatClass.CONFLICT),
        (Decision.CONFLICT, LATE_AFTER_MS * 2, RepeatClass.CONFLICT),
        (Decision.HOLD, 10, RepeatClass.EXPECTED_REPLAY),
        (Decision.QUARANTINE, LATE_AFTER_MS * 2, RepeatClass.LATE_REPLAY),
        (Decision.RETRY, 10, RepeatClass.EXPECTED_REPLAY),
    ],
)
def test_known_key_is_classified_by_decision_and_age(decision, age_ms, expected) -> None:
    assert classify(decision, age_ms, NO_RUN).kind is expected


def test_each_surface_has_its_own_idea_of_late() -> None:
    day = 24 * 60 * MINUTE
    assert classify(Decision.REPLAY, day, NO_RUN, late_after_ms=2 * day).kind is RepeatClass.EXPECTED_REPLAY


def test_keys_in_their_first_order_are_a_stale_offset() -> None:
    """The ninth old key in a row tells; the evidence says from where to where."""
    # Given as many known keys in a row as chance would hardly give, in their first order
    run = run_of(list(range(101, 101 + RUN_MIN)))
    # When the last of them is classified
    found = classify(Decision.REPLAY, 3 * MINUTE, run)
    # Then it is a re-emission, and one fewer was none
    assert found.kind is RepeatClass.STALE_OFFSET
    assert "from entry 101 to 108" in found.evidence
    assert not run_of(list(range(101, 100 + RUN_MIN))).is_stale_offset


def test_the_same_key_again_and_again_is_no_run() -> None:
    assert run_of([7] * 50).length == 1


def test_new_keys_in_between_end_a_run() -> None:
    """Retries on a live feed come in order too, but new events come between them."""
    run = OrderedRun()
    for entry in range(1, 200):
        run = run.with_repeat(entry, entry).after_fresh()
        assert not run.is_stale_offset


def test_a_few_overtakings_do_not_hide_a_run() -> None:
    entries = list(range(1, 41))
    entries[20], entries[21] = entries[21], entries[20]
    assert run_of(entries).is_stale_offset


@given(st.integers(0, 2**32))
def test_shuffled_keys_are_hardly_ever_a_run(seed: int) -> None:
    """In a shuffled storm the run keeps breaking: never are most arrivals called a re-emission."""
    entries = list(range(1, 101))
    random.Random(seed).shuffle(entries)
    run, called = OrderedRun(), 0
    for entry in entries:
        run = run.with_repeat(entry, entry)
        called += run.is_stale_offset
    assert called <= 10


@pytest.mark.parametrize(
    ("twin", "expected"),
    [
        (Twin(1, 3_000, ("id",)), RepeatClass.NEW_ID_PER_RETRY),
        (Twin(1, RETRY_WITHIN_MS, ("id",)), RepeatClass.NEW_ID_PER_RETRY),
        (Twin(1, RETRY_WITHIN_MS + 1, ("id",)), RepeatClass.NEW_INTENT),
        (Twin(1, 3_000, ("id",), shared_by=TWINS_MAX), RepeatClass.NEW_ID_PER_RETRY),
        (Twin(1, 3_000, ("id",), shared_by=TWINS_MAX + 1), None),
        (Twin(1, -1, ("id",)), None),
        (Twin(1, 3_000, ("id",), "quantity"), RepeatClass.SPLIT_ACTION),
        (Twin(1, SPLIT_WITHIN_MS + 1, ("id",), "quantity"), None),
        (Twin(1, 3_000, ("id",), "quantity", shared_by=3), None),
    ],
)
def test_same_content_under_another_key_is_classified_by_its_distance(twin, expected) -> None:
    found = classify_twin(twin)
    assert (found and found.kind) is expected


def test_every_class_has_a_harm_an_advice_and_a_label() -> None:
    assert {kind.harm for kind in RepeatClass} == set(Harm)
    assert all(kind.advice and kind.label.islower() for kind in RepeatClass)
    assert RepeatClass.NEW_ID_PER_RETRY.is_sender_bug
    assert not RepeatClass.LATE_REPLAY.is_sender_bug


@pytest.mark.slow
@given(
    st.sampled_from([decision for decision in Decision if decision is not Decision.RUN]),
    st.integers(-(10**12), 10**12),
    st.lists(st.integers(1, 50), max_size=60),
)
def test_any_repeat_gets_exactly_one_class_with_evidence(decision, age_ms, entries) -> None:
    found = classify(decision, age_ms, run_of(entries))
    assert isinstance(found.kind, RepeatClass)
    assert found.evidence
