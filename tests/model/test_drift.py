"""Realtime and confirmation of a window: the same work said twice, and where it is not the same (F8)."""

from __future__ import annotations

from typing import Any

import pytest

from oncegate.errors import OncegateError
from oncegate.model.drift import Drift, DriftFields, Side, compare, read_call

FIELDS = DriftFields()
PLACE = ("acme", "exec-1", "06")


def side(*payloads: Any, fields: DriftFields = FIELDS) -> Side:
    found = Side()
    for number, payload in enumerate(payloads, 1):
        reading = read_call({"window": "06", **payload}, fields)
        assert reading is not None
        found.add(reading, number)
    return found


def line(item: str, quantity: Any) -> dict[str, Any]:
    return {"item": item, "quantity": quantity}


def compared(realtime: Side, confirmed: Side | None) -> Drift | None:
    return compare(PLACE, realtime, confirmed)


def test_quantities_of_one_item_are_added_up_and_compared_exactly() -> None:
    """0.1 and 0.2 are 0.3."""
    realtime = side(line("a", 0.1), line("a", 0.2), line("b", 3))
    assert compared(realtime, side({"lines": [line("a", 0.3), line("b", 3)]})) is None


def test_what_differs_is_counted_by_kind_with_examples() -> None:
    realtime = side(line("a", 4), line("b", 1), line("c", 1))
    found = compared(realtime, side({"lines": [line("a", 3), line("c", 1), line("d", 1), line("e", 1)]}))
    assert found is not None
    assert (found.realtime_calls, found.realtime_items, found.confirmed_items) == (3, 3, 4)
    assert (found.differing, found.only_realtime, found.only_confirmed) == (1, 1, 2)
    assert found.examples == ("a", "b", "d", "e")
    assert not found.unconfirmed


def test_a_window_without_a_confirmation_differs_even_without_items() -> None:
    found = compared(side({}), None)
    assert found is not None
    assert (found.unconfirmed, found.differing, found.examples) == (True, 0, ())


def test_a_confirmation_without_realtime_differs_by_its_items() -> None:
    found = compared(Side(), side({"lines": [line("a", 1)]}))
    assert found is not None
    assert (found.only_confirmed, found.realtime_calls) == (1, 0)
    assert compared(Side(), side({})) is None


@pytest.mark.parametrize("quantity", [None, "4", True, [1], {"n": 1}])
def test_what_is_no_number_counts_as_one_piece(quantity: Any) -> None:
    assert compared(side(line("a", quantity)), side({"lines": [line("a", 1)]})) is None


@pytest.mark.parametrize("payload", [None, 7, [], {}, {"window": ""}, {"window": None}, {"window": [1]}])
def test_a_call_that_names_no_window_is_not_compared(payload: Any) -> None:
    assert read_call(payload, FIELDS) is None


def test_fields_are_paths() -> None:
    fields = DriftFields("task.wave", "task.sku", "n", "body.rows")
    one = read_call({"task": {"wave": 6, "sku": "a"}, "n": 2}, fields)
    other = read_call(
        {"task": {"wave": "6"}, "body": {"rows": [{"task": {"sku": "a"}, "n": 2}, 7]}}, fields
    )
    assert one is not None
    assert one == other
    with pytest.raises(OncegateError):
        DriftFields(window="")
