"""What the gate finds out about users' functions, remembered per function.

A callable that cannot be hashed is simply looked at each time.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import AsyncGeneratorType, FunctionType, GeneratorType, MethodType
from typing import Any, Final, TypeVar

from oncegate.errors import UsageError

T = TypeVar("T")
FUNCTIONS_REMEMBERED_MAX: Final = 1024
_NOTHING: Final[Any] = object()
LAZY: Final = frozenset({GeneratorType, AsyncGeneratorType, map, filter})
KEY_PARAMETERS: Final = ("idempotency_key", "headers")


def remembered(look: Callable[[Callable[..., Any]], T]) -> Callable[[Callable[..., Any]], T]:
    """Remembers what was found out about a function.

    A method, a function inside a handler and a partial are created again for each event. Only what all of
    one kind have in common is kept: the object itself would keep an event or an ended transaction alive.
    """
    plain = functools.lru_cache(maxsize=FUNCTIONS_REMEMBERED_MAX)(look)
    kinds: dict[Any, T] = {}
    living: dict[int, tuple[weakref.ref[Any], T]] = {}  # a handler inside a function may live for ever

    @functools.wraps(look)
    def find(function: Callable[..., Any]) -> T:
        if _stands_for_itself(function):
            return plain(function)
        seen = living.get(number := id(function))
        if seen is not None and seen[0]() is function:
            return seen[1]
        found = _find_kind(look, kinds, function)
        if type(function) is not MethodType:  # which is made for one call
            with suppress(TypeError):  # of what there can be no weak reference to
                living[number] = (weakref.ref(function, lambda _: living.pop(number, None)), found)
        return found

    return find


def _stands_for_itself(function: Callable[..., Any]) -> bool:
    """Whether it is a function of a module or a class, and keeps nothing that an event brought."""
    return type(function) is FunctionType and function.__closure__ is None and not function.__defaults__


def _find_kind(
    look: Callable[[Callable[..., Any]], T], known: dict[Any, T], function: Callable[..., Any]
) -> T:
    try:
        kind = _kind_of(function)
        if kind is None:
            return look(function)
        found: T = known.get(kind, _NOTHING)
    except TypeError:  # something in it cannot be hashed
        return look(function)
    if found is not _NOTHING:
        return found
    if len(known) >= FUNCTIONS_REMEMBERED_MAX:
        known.clear()
    found = known[kind] = look(function)
    return found


def _kind_of(function: Callable[..., Any]) -> Any:
    """What functions that differ in their values only have in common; None if nothing is known of that."""
    if _stands_for_itself(function):
        return function
    if type(function) is MethodType:
        kind = _kind_of(function.__func__)
        return None if kind is None else (MethodType, kind)
    if type(function) is functools.partial:
        kind = _kind_of(function.func)
        bound = len(function.args), tuple(function.keywords)
        return None if kind is None else (functools.partial, kind, *bound)
    if type(function) is FunctionType and not function.__dict__:
        # Code is equal to code of the same text in another file, where a type's name may mean another type.
        code, place = function.__code__, (function.__module__, function.__code__.co_filename)
        return code, place, function.__name__, function.__annotations__.get("return")
    return None


@remembered
def is_async(function: Callable[..., Any]) -> bool:
    """Tells whether a callable is async, also behind partial objects and `__call__`."""
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


@remembered
def refuse_generator(function: Callable[..., Any]) -> None:
    """Raises UsageError for a function with `yield`: calling it runs nothing of it."""
    called = getattr(function, "__call__", None)  # noqa: B004
    if any(
        inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in (function, called)
    ):
        raise UsageError(
            f"{name_of(function)} is a generator function: calling it runs nothing of it, and no code"
            " would go through what it yields; collect that in a list and return it"
        )


def refuse_lazy(function: Callable[..., Any], answer: Any) -> None:
    """Raises UsageError for an answer that is work still to be done: what was done is not known."""
    if type(answer) in LAZY:
        raise UsageError(
            f"{name_of(function)} returned a {type(answer).__name__}, whose work has not been done, and"
            " no code would do it; return a list of what it gives"
        )


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


def was_refused(error: BaseException, function: Callable[..., Any], *arguments: Any, **given: Any) -> bool:
    """Tells whether Python refused a call's arguments: then nothing of the function was run."""
    if type(error) is not TypeError or type(function) not in (FunctionType, MethodType):
        return False
    try:
        inspect.signature(function, follow_wrapped=False).bind(*arguments, **given)
    except TypeError:
        return True
    return False


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
