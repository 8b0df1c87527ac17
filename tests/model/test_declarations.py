"""Declarations: what is kept of one, and what may be relied on where two versions differ (I24)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.model.declarations import (
    Declaration,
    DeclaredDownstream,
    HandlerKind,
    StartedStep,
    capability_of,
    decode,
    encode,
    find_unnamed,
    more_careful,
    pattern_of,
    text_of,
    untold,
)
from oncegate.model.downstream import Capability, Doubt, SecondCall, plan_second_call

lives = st.integers(0, 10**9).map(lambda ms: timedelta(milliseconds=ms))
capabilities = st.builds(
    Capability, honours_key_for=st.none() | lives, can_be_asked=st.booleans(), request_life_max=lives
)
names = st.from_regex(r"[a-z_.-]{1,8}", fullmatch=True)
declarations = st.builds(
    Declaration,
    kind=st.sampled_from(HandlerKind),
    places=st.dictionaries(
        names,
        st.builds(
            DeclaredDownstream, capability=capabilities, steps=st.lists(names, unique=True).map(tuple)
        ),
        max_size=3,
    ),
)
CARE = [SecondCall.CALL_AGAIN, SecondCall.ASK_FIRST, SecondCall.PERSON]


@given(capabilities)
def test_a_capability_comes_back_from_its_text(capability: Capability) -> None:
    assert capability_of(text_of(capability)) == capability


@pytest.mark.slow
@given(declarations)
def test_a_declaration_comes_back_from_its_text(declaration: Declaration) -> None:
    found = decode(encode(declaration))
    assert found is not None
    assert found.kind is declaration.kind
    assert {name: (place.capability, set(place.steps)) for name, place in found.places.items()} == {
        name: (place.capability, set(place.steps)) for name, place in declaration.places.items()
    }


def test_what_cannot_be_read_counts_as_no_declaration() -> None:
    """A text of a newer program, or a damaged one, is nothing to rely on."""
    for text in (None, "", "[]", "7", '["later",{}]', '["once",{"bank":["?",[]]}]', '["once",[1]]', "{"):
        assert decode(text) is None
    for text in (None, "", "1/ask", "x/ask/1", "1/ask/1/1", "-/-/-"):
        assert capability_of(text) is None


@given(capabilities, capabilities, lives, lives)
def test_neither_version_alone_would_be_more_careful(
    then: Capability, now: Capability, first: timedelta, last: timedelta
) -> None:
    """Whatever one version alone would leave to a person or ask about is not simply called by both."""
    doubt = Doubt(first_call_age=first, last_call_age=last, may_have_begun=True)
    both = CARE.index(plan_second_call(more_careful(then, now), doubt))
    if both != CARE.index(SecondCall.PERSON):
        assert both >= max(CARE.index(plan_second_call(one, doubt)) for one in (then, now))
    assert more_careful(then, now).request_life_max >= max(then.request_life_max, now.request_life_max)


@given(capabilities, capabilities)
def test_the_order_of_versions_does_not_matter(one: Capability, other: Capability) -> None:
    """A rolling deployment goes both ways."""
    assert more_careful(one, other) == more_careful(other, one)
    assert more_careful(one, one) == one


@given(capabilities)
def test_without_a_declaration_nothing_is_relied_on(now: Capability) -> None:
    found = more_careful(None, now)
    assert (found.honours_key_for, found.can_be_asked) == (None, False)


def test_only_repeatable_downstreams_are_called_without_a_record() -> None:
    week = Capability(honours_key_for=timedelta(days=7))
    places = {
        "bank": DeclaredDownstream(week, ("charge",)),
        "mail": DeclaredDownstream(Capability(), ("send",)),
    }
    assert untold(Declaration(HandlerKind.ONCE, places)) == [StartedStep("charge", "bank")]


def test_steps_that_differ_in_a_number_are_one() -> None:
    assert pattern_of("line-7") == pattern_of("line-12") == "line-#"
    declaration = Declaration(
        HandlerKind.ONCE, {"bank": DeclaredDownstream(Capability(can_be_asked=True), ("line-#",))}
    )
    assert declaration.place_of("line-3") is not None
    assert declaration.place_of("line-x") is None


def test_a_step_that_was_named_is_no_reason_for_doubt() -> None:
    """One of several numbered steps may be another than the one that was named."""
    known = {"bank", "mail"}
    charge, lines = StartedStep("charge", "bank"), StartedStep("line-#", "bank")
    assert find_unnamed([charge], {"charge"}, "bank", known) is None
    assert find_unnamed([charge], set(), "bank", known) == charge
    assert find_unnamed([charge], set(), "mail", known) is None
    assert find_unnamed([StartedStep("charge", "bank-1")], set(), "bank", known) is not None
    assert find_unnamed([charge], set(), "(undeclared)", known) == charge
    assert find_unnamed([lines], {"line-1"}, "bank", known) == lines
