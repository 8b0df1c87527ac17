"""The entry's state machine: what an arrival of a known key gets, and which state may follow which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from oncegate.model.decisions import verbs_for
from oncegate.model.states import (
    INTERRUPTIONS_MAX,
    TRANSITIONS,
    Decision,
    Known,
    State,
    free_in_ms,
    judge,
    may_follow,
    why_given_up,
)
from tests.support.properties import tried

bounded = tried(100)

SAME, OTHER = b"same", b"other"
FINAL = {State.COMMITTED, State.FAILED}

knowns = st.builds(
    Known,
    state=st.sampled_from(State),
    fingerprint=st.just(SAME),
    attempt=st.integers(1, 12),
    lease_until_ticks=st.integers(0, 1000),
)
ticks = st.integers(0, 1000)
limits = st.integers(1, 12)


@pytest.mark.parametrize(
    ("state", "lapsed", "exhausted", "decision"),
    [
        (State.IN_FLIGHT, False, False, Decision.BUSY),
        (State.IN_FLIGHT, False, True, Decision.BUSY),
        (State.IN_FLIGHT, True, False, Decision.RECOVER),
        (State.IN_FLIGHT, True, True, Decision.HOLD),
        (State.RETRYABLE, False, False, Decision.RETRY),
        (State.RETRYABLE, True, False, Decision.RETRY),
        (State.RETRYABLE, True, True, Decision.HOLD),
        (State.COMMITTED, True, True, Decision.REPLAY),
        (State.FAILED, True, True, Decision.REPLAY),
        (State.UNKNOWN, True, False, Decision.HOLD),
        (State.HELD, True, False, Decision.HOLD),
        (State.QUARANTINED, True, False, Decision.QUARANTINE),
    ],
    ids=str,
)
def test_the_table_of_decisions(state: State, lapsed: bool, exhausted: bool, decision: Decision) -> None:
    """Each state leads to one decision, by lease and attempts where they matter."""
    known = Known(state, SAME, attempt=3, lease_until_ticks=100)
    now = 100 if lapsed else 99
    assert judge(known, SAME, now, attempts_max=3 if exhausted else 4) is decision


@bounded
@given(knowns, ticks, limits)
def test_other_content_is_a_conflict_in_every_state(known: Known, now: int, limit: int) -> None:
    """I7: nothing but the conflict is revealed, whatever the state, the lease and the attempts."""
    assert judge(known, OTHER, now, limit) is Decision.CONFLICT


@bounded
@given(knowns, ticks, limits)
def test_a_claim_is_given_only_where_nobody_can_hold_one(known: Known, now: int, limit: int) -> None:
    """A final, held, unknown or quarantined entry never runs; one in flight only after its lease."""
    decision = judge(known, SAME, now, limit)
    if decision.claims:
        assert known.state in (State.RETRYABLE, State.IN_FLIGHT)
        assert known.attempt < limit
        if known.state is State.IN_FLIGHT:
            assert now >= known.lease_until_ticks
            assert decision is Decision.RECOVER, "a lapsed lease is a reason to look, not to run"


@bounded
@given(knowns, ticks, limits, ticks)
def test_nothing_runs_inside_its_wait(known: Known, now: int, limit: int, retry_at: int) -> None:
    """I26: before its time a failed attempt is busy, and says for how long; later it has no say."""
    waiting = replace(known, retry_at_ticks=retry_at)
    decision = judge(waiting, SAME, now, limit)
    if known.state is State.RETRYABLE and now < retry_at:
        assert decision is Decision.BUSY
        assert free_in_ms(waiting, now) == retry_at - now
    else:
        assert decision is judge(known, SAME, now, limit)


def test_only_deaths_in_a_row_send_an_event_to_a_person_early() -> None:
    """An outage has many attempts, a poisoned event has many dead workers: only the second is held."""
    failing = Known(State.RETRYABLE, SAME, attempt=200, lease_until_ticks=0)
    deadly = Known(State.IN_FLIGHT, SAME, 8, 0, interruptions=INTERRUPTIONS_MAX - 1)
    assert judge(failing, SAME, 1, 297) is Decision.RETRY
    assert judge(deadly, SAME, 1, 297) is Decision.HOLD
    assert judge(replace(deadly, interruptions=INTERRUPTIONS_MAX - 2), SAME, 1, 297) is Decision.RECOVER
    assert why_given_up(deadly) == "gave up after 8 workers died of it in a row"


@bounded
@given(knowns, ticks, limits)
def test_a_replay_is_given_only_of_a_final_entry(known: Known, now: int, limit: int) -> None:
    """An outcome is shown when it will never change again."""
    assert (judge(known, SAME, now, limit) is Decision.REPLAY) == known.state.is_final


@pytest.mark.slow
@bounded
@given(knowns, ticks, limits)
def test_a_known_key_is_never_simply_run(known: Known, now: int, limit: int) -> None:
    """RUN is for new keys; a known one is retried or recovered, which asks first."""
    assert judge(known, SAME, now, limit) is not Decision.RUN


def test_final_states_are_left_by_nothing_but_a_person() -> None:
    """Committed entries never change; a person may let a failed one be tried again."""
    assert {state for state in State if state.is_final} == FINAL
    assert TRANSITIONS[State.COMMITTED] == frozenset()
    assert TRANSITIONS[State.FAILED] == {verb.leads_to for verb in verbs_for(State.FAILED)}


def test_every_state_has_its_row() -> None:
    """The table is complete, and every state but the first can be reached."""
    assert set(TRANSITIONS) == set(State)
    assert frozenset().union(*TRANSITIONS.values()) == frozenset(State)


def test_a_person_can_settle_what_waits_for_one() -> None:
    """What waits for a person is left by a person's decision, which ends it or lets it be tried again."""
    for state in (State.UNKNOWN, State.HELD, State.QUARANTINED):
        decided = {verb.leads_to for verb in verbs_for(state)}
        assert decided == {State.FAILED, State.RETRYABLE}
        assert TRANSITIONS[state] - {State.QUARANTINED} == decided
    # What may have had its effect is never put where a release would run it
    assert not may_follow(State.UNKNOWN, State.QUARANTINED)
    assert may_follow(State.HELD, State.QUARANTINED)


def test_a_failed_attempt_is_never_cached_as_final() -> None:
    """I9: from retryable the way to an outcome leads through another attempt."""
    assert not may_follow(State.RETRYABLE, State.COMMITTED)
    assert not may_follow(State.RETRYABLE, State.FAILED)
    assert may_follow(State.RETRYABLE, State.IN_FLIGHT)


def test_stored_numbers_and_words_do_not_change() -> None:
    """They stand in ledgers and in filters: renumbering would change what old entries mean."""
    assert {state.label: state.value for state in State} == {
        "in_flight": 1,
        "committed": 2,
        "failed": 3,
        "retryable": 4,
        "unknown": 5,
        "held": 6,
        "quarantined": 7,
    }


def test_only_three_decisions_claim() -> None:
    """Whoever gets another one must not run anything."""
    assert {decision for decision in Decision if decision.claims} == {
        Decision.RUN,
        Decision.RETRY,
        Decision.RECOVER,
    }
