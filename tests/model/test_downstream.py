"""What may be done about an effect that may already have happened, by what its downstream can do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.model.downstream import (
    Capability,
    Doubt,
    Promise,
    SecondCall,
    plan_after_not_found,
    plan_second_call,
)
from tests.support.properties import tried

bounded = tried(100)

MINUTE, HOUR, WEEK = timedelta(minutes=1), timedelta(hours=1), timedelta(days=7)

durations = st.timedeltas(timedelta(0), timedelta(days=30))
capabilities = st.builds(
    Capability,
    honours_key_for=st.none() | durations,
    can_be_asked=st.booleans(),
    request_life_max=durations,
)
doubts = st.builds(Doubt, first_call_age=durations, last_call_age=durations, may_have_begun=st.booleans())


@pytest.mark.parametrize(
    ("honours", "asked", "promise"),
    [
        (WEEK, False, Promise.KEY_HONOURED),
        (WEEK, True, Promise.KEY_HONOURED),
        (None, True, Promise.ASKED),
        (None, False, Promise.AT_MOST_ONCE),
    ],
)
def test_the_promise_is_what_the_abilities_carry(
    honours: timedelta | None, asked: bool, promise: Promise
) -> None:
    """The product never claims more than one of these rows."""
    assert Capability(honours, asked).promise is promise


@pytest.mark.parametrize(
    ("honours", "asked", "age", "started", "plan"),
    [
        (WEEK, False, HOUR, True, SecondCall.CALL_AGAIN),
        (WEEK, True, HOUR, True, SecondCall.CALL_AGAIN),
        (WEEK, False, WEEK, False, SecondCall.CALL_AGAIN),
        (WEEK, False, WEEK, True, SecondCall.PERSON),
        (WEEK, True, WEEK, True, SecondCall.ASK_FIRST),
        (None, True, HOUR, True, SecondCall.ASK_FIRST),
        (None, True, HOUR, False, SecondCall.ASK_FIRST),
        (None, False, HOUR, True, SecondCall.PERSON),
        (None, False, HOUR, False, SecondCall.CALL_AGAIN),
    ],
)
def test_the_table_of_second_calls(
    honours: timedelta | None, asked: bool, age: timedelta, started: bool, plan: SecondCall
) -> None:
    """A row for each ability, on both sides of its limit."""
    doubt = Doubt(first_call_age=age, last_call_age=timedelta(0), may_have_begun=started)
    assert plan_second_call(Capability(honours, asked), doubt) is plan


@bounded
@given(capabilities, doubts)
def test_a_second_call_is_allowed_only_for_a_reason(capability: Capability, doubt: Doubt) -> None:
    """Either the key is still honoured, or there certainly was no first call."""
    if plan_second_call(capability, doubt) is not SecondCall.CALL_AGAIN:
        return
    honoured = capability.honours_key_for is not None and doubt.first_call_age < capability.honours_key_for
    assert honoured or not doubt.may_have_begun


@bounded
@given(capabilities, doubts, durations)
def test_more_time_never_allows_what_less_time_forbade(
    capability: Capability, doubt: Doubt, later: timedelta
) -> None:
    """Growing older makes the plan for a second call only more careful."""
    older = Doubt(doubt.first_call_age + later, doubt.last_call_age + later, doubt.may_have_begun)
    if plan_second_call(capability, older) is SecondCall.CALL_AGAIN:
        assert plan_second_call(capability, doubt) is SecondCall.CALL_AGAIN


@bounded
@given(capabilities, doubts)
def test_a_downstream_that_can_be_asked_is_never_left_to_a_person(
    capability: Capability, doubt: Doubt
) -> None:
    """A6: no human where the downstream knows."""
    if capability.can_be_asked:
        assert plan_second_call(capability, doubt) is not SecondCall.PERSON


@pytest.mark.parametrize(
    ("age", "plan"),
    [
        (timedelta(0), SecondCall.WAIT),
        (MINUTE - timedelta(milliseconds=1), SecondCall.WAIT),
        (MINUTE, SecondCall.CALL_AGAIN),
        (HOUR, SecondCall.CALL_AGAIN),
    ],
)
def test_nothing_found_means_nothing_only_after_a_requests_life(age: timedelta, plan: SecondCall) -> None:
    """What was sent earlier may still arrive."""
    doubt = Doubt(first_call_age=HOUR, last_call_age=age, may_have_begun=True)
    assert plan_after_not_found(Capability(can_be_asked=True, request_life_max=MINUTE), doubt) is plan
