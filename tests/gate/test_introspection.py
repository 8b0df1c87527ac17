"""What the gate finds out about users' functions is remembered; the objects behind them are not kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from oncegate.gate.introspection import FUNCTIONS_REMEMBERED_MAX, is_async, key_parameters, step_name_of


class Desk:
    """An object that lives for one event."""

    async def book(self, event: Any, idempotency_key: str) -> None:
        """Async, with a key at the second place."""

    def call(self, headers: dict[str, str]) -> None:
        """Plain, with a key at the first place."""


def _bound(number: int) -> Any:
    def book(self: Any, idempotency_key: str) -> int:
        return number

    return book.__get__(object())


def test_an_object_is_not_kept_because_its_method_was_looked_at() -> None:
    # Given what is found out about methods of an object
    desk = Desk()
    looks: list[Callable[[Any], Any]] = [is_async, key_parameters, step_name_of]
    for look in looks:
        look(desk.book)
        look(desk.call)
    # When nobody else has the object any more
    gone = weakref.ref(desk)
    del desk
    gc.collect()
    # Then it is gone
    assert gone() is None


def test_methods_are_told_apart_from_each_other_and_from_their_functions() -> None:
    # Given one object's methods, and the functions behind them
    for desk in (Desk(), Desk()):
        # Then each has its own kind and places, with and without the object
        assert is_async(desk.book)
        assert not is_async(desk.call)
        assert key_parameters(desk.book) == {"idempotency_key": 1}
        assert key_parameters(Desk.book) == {"idempotency_key": 2}
        assert key_parameters(desk.call) == {"headers": 0}
        assert (step_name_of(desk.book), step_name_of(desk.call)) == ("book", "call")


def test_any_number_of_methods_may_come_and_go() -> None:
    # Given more functions with an object than are remembered
    for number in range(FUNCTIONS_REMEMBERED_MAX + 3):
        # Then what is found is right for each
        assert key_parameters(_bound(number)) == {"idempotency_key": 0}
    assert key_parameters(Desk().book) == {"idempotency_key": 1}
