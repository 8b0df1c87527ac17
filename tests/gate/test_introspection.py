"""What the gate finds out about users' functions is remembered; the objects behind them are not kept."""

from __future__ import annotations

import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from oncegate.errors import UsageError
from oncegate.gate.codec.callable_info import callee_of
from oncegate.gate.codec.introspection import (
    FUNCTIONS_REMEMBERED_MAX,
    is_async,
    key_parameters,
    step_name_of,
)
from oncegate.gate.codec.values import codec_of


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
    looks: list[Callable[[Any], Any]] = [is_async, key_parameters, step_name_of, callee_of]
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


class Payload:
    """An event, as large as it likes."""


def _inside(payload: Payload) -> Callable[..., Any]:
    async def book(idempotency_key: str) -> object:
        return payload

    return book


def _partial(payload: Payload) -> Callable[..., Any]:
    async def book(event: Payload, idempotency_key: str) -> object:
        return event

    return functools.partial(book, payload)


def _partial_by_name(payload: Payload) -> Callable[..., Any]:
    async def book(idempotency_key: str, event: Payload) -> object:
        return event

    return functools.partial(book, event=payload)


def _method_of_a_kind(payload: Payload) -> Callable[..., Any]:
    async def book(self: Any, idempotency_key: str) -> object:
        return payload

    bound: Callable[..., Any] = book.__get__(payload)
    return bound


@pytest.mark.parametrize("make", [_inside, _partial, _partial_by_name, _method_of_a_kind])
def test_an_event_is_not_kept_because_a_function_had_it(make: Callable[[Payload], Any]) -> None:
    # Given what is found out about a function that was made for one event
    for payload in (Payload(), Payload()):
        looks: list[Callable[[Any], Any]] = [is_async, key_parameters, step_name_of, codec_of, callee_of]
        found = [look(make(payload)) for look in looks]
        # Then it is the same for each of them
        assert found[:3] == [True, {"idempotency_key": 0}, "book"]
    # When nobody else has the event any more, then it is gone
    gone = weakref.ref(payload)
    del payload, found
    gc.collect()
    assert gone() is None


def test_functions_of_one_text_are_told_apart_by_name_type_and_what_is_bound() -> None:
    # Given functions that come from the same lines
    def make(kind: type, name: str) -> Callable[..., Any]:
        def call(first: str, headers: dict[str, str]) -> None:
            raise AssertionError(kind)

        call.__name__, call.__annotations__ = name, {"return": kind}
        return call

    # Then a name of one's own counts, and so does the type that is returned
    assert [step_name_of(make(int, name)) for name in ("one", "two")] == ["one", "two"]
    assert [codec_of(make(kind, "x")).decode(b"5") for kind in (int, float)] == [5, 5.0]
    assert type(codec_of(make(float, "x")).decode(b"5")) is float
    # And what is bound moves the places
    assert key_parameters(make(int, "x")) == {"headers": 1}
    assert key_parameters(functools.partial(make(int, "x"), "a")) == {"headers": 0}
    assert key_parameters(functools.partial(make(int, "x"), first="a")) == {"headers": None}
    assert key_parameters(functools.partial(make(int, "x"), headers={})) == {"headers": None}


def test_what_cannot_be_hashed_is_looked_at_each_time() -> None:
    class Booker:
        __hash__ = None  # type: ignore[assignment]

        async def __call__(self, idempotency_key: str) -> None: ...

    assert is_async(Booker())
    assert key_parameters(functools.partial(Booker())) == {"idempotency_key": 0}


def test_a_callee_is_all_that_an_effect_must_know() -> None:
    # Given functions of each kind, when they are looked at
    async def book(headers: dict[str, str]) -> float:
        return 5.0

    found, nameless = callee_of(book), callee_of(lambda: 1)
    # Then what is found is what each look finds by itself
    assert (found.step_name, found.is_async, found.key_parameters) == ("book", True, {"headers": 0})
    assert type(found.codec.decode(b"5")) is float
    # And a lambda is told by its want of a name, a function with `yield` at once
    assert (nameless.step_name, nameless.is_async, nameless.key_parameters) == ("", False, {})

    def several() -> Any:
        yield 1

    with pytest.raises(UsageError, match="generator function"):
        callee_of(several)


def test_the_same_text_in_two_modules_is_two_kinds() -> None:
    """A type's name means another type there."""
    source = (
        "from __future__ import annotations\nimport dataclasses\n"
        "@dataclasses.dataclass\nclass Slot:\n    id: str\n"
        "def make(number):\n    def call() -> Slot:\n        return Slot(str(number))\n    return call\n"
    )
    modules = [types.ModuleType(name) for name in ("carrier_a", "carrier_b")]
    for module in modules:
        sys.modules[module.__name__] = module
        exec(compile(source, f"{module.__name__}.py", "exec"), module.__dict__)
    try:
        for module in modules:
            restored = callee_of(module.make(1)).codec.decode(b'{"id": "1"}')
            assert type(restored) is module.Slot
    finally:
        for module in modules:
            del sys.modules[module.__name__]


class _Booker:
    """Called like a function; made anew for each event."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload

    def __call__(self, idempotency_key: str) -> None: ...


def _wrapped(payload: Payload) -> Any:
    @functools.wraps(_bound)
    def book(idempotency_key: str) -> object:
        return payload

    return book


def _with_default(payload: Payload) -> Any:
    def book(idempotency_key: str, payload: Payload = payload) -> None: ...

    return book


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        _Booker,
        _wrapped,
        _with_default,
        lambda payload: functools.partial(_Booker(payload)),
        lambda payload: functools.partial(_wrapped(payload)),
    ],
)
def test_an_event_is_not_kept_by_anything_that_can_be_called(make: Callable[[Payload], Any]) -> None:
    payload = Payload()
    callee_of(make(payload))
    gone = weakref.ref(payload)
    del payload
    gc.collect()
    assert gone() is None
