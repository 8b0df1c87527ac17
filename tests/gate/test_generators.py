"""Functions with `yield`, and answers that are work still to be done: never on record as done."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from oncegate import UsageError, Verdict
from tests.support.gates import Ledger, Style

EVENT = {"id": "N-1"}
LAZY: list[Callable[[list[int]], Any]] = [
    lambda ran: (ran.pop() for _ in "a"),
    lambda ran: map(ran.append, [1]),
    lambda ran: filter(ran.append, [1]),
]


def plain(event):
    """Yields, and takes the event only."""
    yield event


def with_once(event, once):
    """Yields, and takes once."""
    yield event


async def asynchronous(event):
    """Yields, and is async."""
    yield event


class Callee:
    """Yields when it is called."""

    def __call__(self, event):
        yield event


GENERATORS = [plain, with_once, asynchronous, Callee(), functools.partial(plain), Callee().__call__]
NAMES = ["plain", "with once", "async", "callable", "partial", "method"]
each_generator = pytest.mark.parametrize("function", GENERATORS, ids=NAMES)


@each_generator
def test_a_generator_function_is_refused_as_a_handler(ledger: Ledger, function: Any) -> None:
    """Calling it runs nothing of it: it would be recorded as done. It is told when it is registered."""
    with pytest.raises(UsageError, match=r"generator function.*return it"):
        ledger.gate().handler("bookings", key="{id}")(function)


@pytest.mark.parametrize("function", [plain, asynchronous])
def test_a_generator_function_is_refused_under_once(ledger: Ledger, function: Any) -> None:
    """The same for plain functions that shall run once."""
    with pytest.raises(UsageError, match="generator function"):
        ledger.gate().once(key="{event}")(function)


def test_a_generator_function_is_refused_as_a_probe(ledger: Ledger) -> None:
    """It would answer with something for every key."""
    with pytest.raises(UsageError, match="generator function"):
        ledger.gate().downstream("ect", probe=plain)


@each_generator
def test_a_generator_function_is_refused_as_an_effect(ledger: Ledger, style: Style, function: Any) -> None:
    """Nothing was called, and nothing is on record as done."""
    gate = ledger.gate()
    ect = gate.downstream("ect", honours_key="7d")

    def effect(event, once):
        yield once.effect(ect, function, event, name="claim")

    def step(event, once):
        yield once.step("claim", function, event)

    style.register(gate, "effects", effect)
    style.register(gate, "steps", step)
    for surface in ("effects", "steps"):
        with pytest.raises(UsageError, match="generator function"):
            style.admit(gate, surface, EVENT)
    assert ledger.states() == ["retryable", "retryable"]


@pytest.mark.parametrize("lazy", LAZY)
def test_work_that_was_returned_undone_is_not_committed(ledger: Ledger, style: Style, lazy: Any) -> None:
    """Nobody can tell what an opaque handler did before: a person looks, and nothing is run again."""
    gate = ledger.gate()
    ran: list[int] = []
    style.register(gate, "bookings", lambda event: lazy(ran))

    with pytest.raises(UsageError, match=r"has not been done.*return a list"):
        style.admit(gate, "bookings", EVENT)

    assert ledger.states() == ["unknown"]
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.HOLD
    assert ran == []


@pytest.mark.parametrize("lazy", LAZY)
def test_work_that_a_handler_with_once_returned_undone_is_tried_again(
    ledger: Ledger, style: Style, lazy: Any
) -> None:
    """What it did outside went through `once`, which knows what is done."""
    gate = ledger.gate()
    ran: list[int] = []

    def handler(event, once):
        return lazy(ran) if not ran else "booked"

    async def handler_async(event, once):
        return handler(event, once)

    gate.handler("bookings", key="{id}")(handler_async if style.is_async else handler)
    with pytest.raises(UsageError, match="has not been done"):
        style.admit(gate, "bookings", EVENT)
    ran.append(1)  # mended

    assert style.admit(gate, "bookings", EVENT).value == "booked"


def test_value_that_cannot_be_stored_is_still_committed(ledger: Ledger, style: Style) -> None:
    """What gave it has happened: it is told, and never run again."""
    gate, ran = ledger.gate(), []

    def book(event):
        ran.append(event)
        return iter([1])

    style.register(gate, "bookings", book)
    with pytest.raises(UsageError, match="cannot be stored"):
        style.admit(gate, "bookings", EVENT)

    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.REPLAY
    assert len(ran) == 1
