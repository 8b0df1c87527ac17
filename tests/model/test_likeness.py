"""Two events are alike if only their ids differ; common content and business ids are left alone."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.model.content_similarity import LEAVES_MAX, likeness_of

ONE, TWO = "0190a5c2-7b3e-7ccc-8f00-0123456789ab", "6f1c2a90-12ab-4cde-9f00-aaaaaaaaaaaa"
ORDER = {"correlation_id": ONE, "item": "A-7", "bin": {"aisle": "4", "level": "2"}, "quantity": 6}


WHOLE = -7_315_625_031_855_952_664  # of ORDER, wherever it is computed


def test_events_that_differ_in_their_id_only_are_alike() -> None:
    again = {**ORDER, "correlation_id": TWO}
    assert likeness_of(ORDER, ["correlation_id"]) == likeness_of(again, ["correlation_id"])


def test_events_that_differ_anywhere_else_are_not() -> None:
    other = {**ORDER, "correlation_id": TWO, "bin": {"aisle": "4", "level": "3"}}
    assert likeness_of(ORDER, ["correlation_id"]) != likeness_of(other, ["correlation_id"])


def test_the_order_of_fields_does_not_matter_but_their_place_does() -> None:
    turned = dict(reversed(ORDER.items()))
    moved = {**ORDER, "bin": {"aisle": "2", "level": "4"}}
    first = likeness_of(ORDER, ["correlation_id"])
    assert likeness_of(turned, ["correlation_id"]) == first
    assert likeness_of(moved, ["correlation_id"]) != first


def test_one_differing_amount_shows_as_a_split() -> None:
    """Without the quantity the two halves of one action are the same."""
    first = likeness_of(ORDER, ["correlation_id"])
    second = likeness_of({**ORDER, "correlation_id": TWO, "quantity": 4}, ["correlation_id"])
    assert first is not None
    assert second is not None
    assert first.whole != second.whole
    assert dict(first.without)["quantity"] == dict(second.without)["quantity"]


@pytest.mark.parametrize("name", ["line", "seq", "lineNo", "part", "page_number"])
def test_numbers_that_count_parts_are_no_amounts(name: str) -> None:
    found = likeness_of({"id": ONE, "order": "7", "city": "Delft", name: 1}, ["id"])
    assert found is not None
    assert found.without == ()


def test_with_several_key_fields_only_a_random_one_is_an_id() -> None:
    """One notification about two containers is two events, not one with a new id."""
    paths = ["notificationId", "equipment_number"]
    first = {"notificationId": "N-1", "equipment_number": "MSKU1", "window": "6-7", "berth": "4"}
    assert likeness_of(first, paths) is None
    drawn = likeness_of({**first, "notificationId": ONE}, paths)
    assert drawn is not None
    assert drawn.ids == ("notificationId",)
    other = likeness_of({**first, "notificationId": ONE, "equipment_number": "MSKU2"}, paths)
    assert other is not None
    assert other.whole != drawn.whole


@pytest.mark.parametrize(
    "event",
    [None, [], "text", 7, {}, {"id": ONE}, {"id": ONE, "type": "ping"}, {"a": 1, "b": 2, "c": 3}],
)
def test_nothing_is_said_where_there_is_too_little_to_compare(event: object) -> None:
    assert likeness_of(event, ["id"]) is None


def test_a_huge_event_is_not_compared() -> None:
    assert likeness_of({"id": ONE, **{f"f{i}": i for i in range(LEAVES_MAX + 1)}}, ["id"]) is None


def test_ignored_fields_do_not_count() -> None:
    first = {**ORDER, "meta": {"sent_at": "1", "host": "a"}}
    again = {**ORDER, "meta": {"sent_at": "2", "host": "b"}, "correlation_id": TWO}
    paths = ["correlation_id"]
    assert likeness_of(first, paths) != likeness_of(again, paths)
    assert likeness_of(first, paths, ["meta"]) == likeness_of(again, paths, ["meta"])


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=6), _json, max_size=8), st.uuids(), st.uuids())
def test_a_new_id_never_makes_an_event_look_different(event: dict, one: UUID, two: UUID) -> None:
    first = likeness_of({**event, "the id": str(one)}, ["the id"])
    again = likeness_of({**event, "the id": str(two)}, ["the id"])
    assert first == again


def test_an_id_that_stands_in_the_payload_too_is_left_out_there() -> None:
    """An envelope that repeats the id of what it carries, as the contract's calls do."""

    def enveloped(correlation_id: str) -> dict[str, object]:
        payload = {
            "correlation_id": correlation_id,
            "item": "A",
            "reference": correlation_id,
            "quantity": 6,
        }
        return {"partner_id": "exec-1", "correlation_id": correlation_id, "payload": payload}

    paths = ["partner_id", "correlation_id"]
    first = likeness_of(enveloped(ONE), paths)
    assert first is not None
    assert first == likeness_of(enveloped(TWO), paths)
    assert [name for name, _ in first.without] == ["payload.quantity"]


def test_a_short_id_is_left_out_only_under_its_own_name() -> None:
    """An order 7 of 7 pieces is not an order without pieces."""
    first = likeness_of({"id": 7, "payload": {"id": 7, "pieces": 7, "city": "Delft"}}, ["id"])
    other = likeness_of({"id": 8, "payload": {"id": 8, "pieces": 8, "city": "Delft"}}, ["id"])
    same = likeness_of({"id": 8, "payload": {"id": 8, "pieces": 7, "city": "Delft"}}, ["id"])
    assert first is not None
    assert first != other
    assert first == same


def test_contents_of_two_tenants_are_never_the_same() -> None:
    assert likeness_of(ORDER, ["correlation_id"], (), "a") != likeness_of(
        ORDER, ["correlation_id"], (), "b"
    )


def test_the_numbers_are_the_same_in_every_process() -> None:
    found = likeness_of(ORDER, ["correlation_id"])
    assert found is not None
    assert (found.whole, len(found.without)) == (WHOLE, 1)
    assert -(2**63) <= found.whole < 2**63
