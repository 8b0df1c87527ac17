"""The mutation hash: equal for the same change to the same target, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate import ConfigError, Content
from oncegate.errors import InputRefused
from oncegate.model.content import ContentRule, fill_in

ROUTE = {"client": "c7", "date": "2025-10-26", "stops": [1, 2], "sent": "a", "nested": {"x": 1.0}}
DECLARED = Content(("date", "stops", "nested.x"), "{client}", "cancel route {route_id}")


def hash_of(event: Any, declared: Content = DECLARED, tenant: str = "", surface: str = "routes") -> bytes:
    return ContentRule.of(declared, surface).mark(tenant, event).hash


def test_only_the_declared_fields_and_the_target_count() -> None:
    """Other fields, their order, and how a number is written make no difference."""
    assert hash_of({**ROUTE, "sent": "b"}) == hash_of(dict(reversed(ROUTE.items())))
    assert hash_of({**ROUTE, "nested": {"x": 1, "y": 2}}) == hash_of(ROUTE)


@pytest.mark.parametrize(
    "change",
    [{"date": "2025-10-27"}, {"stops": [2, 1]}, {"client": "c8"}, {"nested": {}}, {"date": None}],
    ids=str,
)
def test_another_change_has_another_hash(change: dict[str, Any]) -> None:
    assert hash_of({**ROUTE, **change}) != hash_of(ROUTE)


def test_missing_is_not_null() -> None:
    """Nothing is guessed: a field that is not there is not a field that is empty."""
    without = {name: value for name, value in ROUTE.items() if name != "date"}
    assert hash_of(without) != hash_of({**ROUTE, "date": None})


def test_tenants_never_meet_and_surfaces_only_if_they_say_so() -> None:
    """I8; two surfaces may name the same mutation."""
    assert hash_of(ROUTE, tenant="a") != hash_of(ROUTE, tenant="b")
    assert hash_of(ROUTE, surface="a") != hash_of(ROUTE, surface="b")
    shared = Content(("date",), "{client}", mutation="route")
    assert hash_of(ROUTE, shared, surface="a") == hash_of(ROUTE, shared, surface="b")


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=2, max_size=2)
)
def test_targets_do_not_run_together(parts: list[str]) -> None:
    """("ab", "c") is not ("a", "bc")."""
    declared = Content(("date",), "{a}{b}")
    try:
        first = hash_of({"a": parts[0], "b": parts[1]}, declared)
        second = hash_of({"a": parts[0] + parts[1][:-1], "b": parts[1][-1:]}, declared)
    except InputRefused:
        return
    assert (first == second) == (len(parts[1]) == 1)


def test_a_target_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InputRefused):
        hash_of({"date": "2025-10-26"})


@pytest.mark.parametrize(
    "declared",
    [Content((), "{a}"), Content("date", "{a}"), Content(("a..b",), "{a}"), Content(("a",), "no field"),
     Content(("a",), "{a}", "x" * 301)],
    ids=["no fields", "a text", "a bad path", "no target", "too long"],
)  # fmt: skip
def test_a_declaration_that_cannot_be_used_is_refused(declared: Content) -> None:
    """When the handler is registered, not when the first event comes."""
    with pytest.raises(ConfigError):
        ContentRule.of(declared, "routes")


def test_a_compensation_is_filled_in_from_resource_outcome_and_event() -> None:
    """In that order; what nothing is known of stays visible."""
    text = "cancel {resource}/{route.id} of {client}, {unknown}, {stops}"
    outcome = {"route": {"id": 5}, "client": "from the outcome"}
    filled = fill_in(text, ROUTE, outcome, "r-1")
    assert filled == "cancel r-1/5 of from the outcome, {unknown}, {stops}"
    assert fill_in("{client}", ROUTE, None, None) == "c7"
    assert fill_in("{client}", None, [1], None) == "{client}"
