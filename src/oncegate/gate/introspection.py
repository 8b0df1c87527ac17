"""What the gate finds out about users' functions, remembered per function.

A callable that cannot be hashed is simply looked at each time.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from types import MethodType
from typing import Any, Final, TypeVar

from oncegate.errors import UsageError

T = TypeVar("T")
FUNCTIONS_REMEMBERED_MAX: Final = 1024
KEY_PARAMETERS: Final = ("idempotency_key", "headers")


def remembered(look: Callable[[Callable[..., Any]], T]) -> Callable[[Callable[..., Any]], T]:
    """Remembers what was found out about a function.

    Of a method only its function is remembered: a method is made anew each time it is asked for, and one
    that is kept keeps its object, be it a transaction that ended long ago.
    """
    plain = functools.lru_cache(maxsize=FUNCTIONS_REMEMBERED_MAX)(look)
    methods: dict[Any, T] = {}

    @functools.wraps(look)
    def find(function: Callable[..., Any]) -> T:
        if type(function) is MethodType:
            return _find_method(look, methods, function)
        try:
            return plain(function)
        except TypeError:
            return look(function)

    return find


def _find_method(look: Callable[[Callable[..., Any]], T], known: dict[Any, T], method: MethodType) -> T:
    try:
        return known[method.__func__]
    except (KeyError, TypeError):
        found = look(method)
    with suppress(TypeError):
        if len(known) >= FUNCTIONS_REMEMBERED_MAX:
            known.clear()
        known[method.__func__] = found
    return found


@remembered
def is_async(function: Callable[..., Any]) -> bool:
    """Tells whether a callable is async, also behind partial objects and `__call__`."""
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


@remembered
def key_parameters(function: Callable[..., Any]) -> dict[str, int | None]:
    """Where a function takes the key: the parameter's name, and its place if it can be given by place."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return {}
    return {
        parameter.name: None if parameter.kind is parameter.KEYWORD_ONLY else place
        for place, parameter in enumerate(parameters)
        if parameter.name in KEY_PARAMETERS
    }


def name_of(function: Callable[..., Any]) -> str:
    """A callable's own name, for messages and steps."""
    target = getattr(function, "func", function)
    return str(getattr(target, "__name__", type(target).__name__))


@remembered
def step_name_of(function: Callable[..., Any]) -> str:
    """The name of a step that was given none: its function's."""
    name = name_of(function)
    if name == "<lambda>":
        raise UsageError("a lambda has no name of its own; give the effect a name=")
    return name
