"""How an event becomes what its handler takes, before anything is reserved and again after a crash."""

from __future__ import annotations

import inspect
import types
import typing
import warnings
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

from oncegate.errors import ConfigError, Failed, InputRefused, NotApplied
from oncegate.gate.codec.declared_types import ABSENT, TypedFields, TypeKind, declared_type, resolved
from oncegate.gate.codec.introspection import name_of
from oncegate.gate.codec.values import AnnotationWarning
from oncegate.model.surface import Arrival, unfit

Reader = Callable[[Any], Any]
_MAPPINGS: Final = (dict, Mapping, MutableMapping)


class OnlyTheCaller(NotApplied):
    """An argument that is not stored is missing; only a new call brings it."""


def reader_of(function: Callable[..., Any], names: Mapping[str, Any]) -> Reader | None:
    """How events are read for a handler whose first parameter is annotated with a class; else None.

    `names` are those that are known where the handler is registered.
    """
    try:
        first = next(iter(inspect.signature(function).parameters.values()))
    except (TypeError, ValueError, StopIteration):
        return None
    declared = resolved(function, first.annotation, names)
    if declared is ABSENT:
        warnings.warn(
            f"the annotation {first.annotation!r} of {name_of(function)} is not known at run time: its"
            " event comes as a plain dict; import the type at run time, not for type checkers only",
            AnnotationWarning,
            stacklevel=4,
        )
        return None
    if _is_mapping(declared):
        return None
    if declared_type(declared).kind is not TypeKind.TYPED:
        if _is_untyped(declared):
            return None
        raise ConfigError(
            f"{name_of(function)} takes a {getattr(declared, '__name__', declared)}, which no event can be"
            " read into; annotate it with a dataclass, a class of attrs, msgspec or pydantic, or with"
            " dict[str, Any]"
        )
    return _EventReader(declared).read


class _EventReader:
    """Reads events into one class."""

    __slots__ = ("_fields",)

    def __init__(self, declared: Any) -> None:
        self._fields = TypedFields({"event": declared})

    def read(self, event: Any) -> Any:
        """Raises InputRefused, which names the place that does not fit."""
        try:
            return self._fields.read({"event": event})["event"]
        except InputRefused as refused:
            path = refused.path.removeprefix("event").removeprefix(".") or "$"
            raise InputRefused(refused.reason, path, refused.detail) from None


def readable(read: Reader, arrival: Arrival, event: Any) -> tuple[Arrival, Any]:
    """An arrival with what its handler takes; one whose event does not fit goes to a person."""
    if arrival.quarantine is not None:
        return arrival, ABSENT
    try:
        return arrival, read(event)
    except InputRefused as refused:
        return unfit(arrival, refused), ABSENT


def read_again(read: Reader, event: Any) -> Any:
    """Reads a stored event for a later attempt; one that no longer fits has failed."""
    try:
        return read(event)
    except InputRefused as refused:
        raise Failed(f"the stored event does not fit what the handler takes: {refused}") from refused


def _is_untyped(declared: Any) -> bool:
    return declared in (Any, object, None, inspect.Parameter.empty) or isinstance(declared, typing.TypeVar)


def _is_mapping(declared: Any) -> bool:
    """Whether an event is what was asked for already; a TypedDict keeps the fields it does not name."""
    if typing.get_origin(declared) in (typing.Union, types.UnionType):
        return all(_is_mapping(one) for one in typing.get_args(declared))
    origin = typing.get_origin(declared) or declared
    return origin in _MAPPINGS or typing.is_typeddict(origin)
