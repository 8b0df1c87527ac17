"""A function's arguments as an event, and an event as arguments: by the annotations of its parameters.

An argument is content, and then it is stored; or it is not (`self`, a session, a client), and then it goes
to the call it came with and nowhere else. Called by `gate.once`. Must never run a function with an argument
that differs from what the caller gave.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from oncegate.errors import BadTemplate, ConfigError, EventNotStorable, InputRefused
from oncegate.gate.codec.declared_types import (
    ABSENT,
    DeclaredType,
    TypedFields,
    TypeKind,
    declared_type,
    resolved,
    to_json,
)
from oncegate.gate.codec.reading import OnlyTheCaller
from oncegate.model.canonical import canonical_json, copied
from oncegate.model.same_values import plain_decimal
from oncegate.model.template import Field, FieldKind

KEY_PARAMETER: Final = "idempotency_key"
_THEMSELVES: Final = ("self", "cls")
_EMPTY: Final[dict[Any, Any]] = {inspect.Parameter.VAR_POSITIONAL: (), inspect.Parameter.VAR_KEYWORD: {}}


class Parameters:
    """What becomes of each of a function's arguments.

    `typed` are written as JSON and restored. `left_out` are never stored. `loose` are named in `ignore=`
    and have no type: they are stored where they are JSON. `places` say where equal values may differ.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: inspect.Signature,
        ignore: Collection[str],
        names: Mapping[str, Any],
    ) -> None:
        self._name = getattr(function, "__name__", "the function")
        self._parameters = {
            name: one for name, one in signature.parameters.items() if name != KEY_PARAMETER
        }
        found = {
            name: self._look(function, name, one, ignore, names) for name, one in self._parameters.items()
        }
        self.typed = {name: one for name, one in found.items() if one.kind is TypeKind.TYPED}
        self.left_out = frozenset(name for name, one in found.items() if one.kind is TypeKind.OPAQUE)
        self.loose = frozenset(
            name for name, one in found.items() if name in ignore and one.declared in (ABSENT, Any)
        )
        self.places = {name: one.place for name, one in self.typed.items() if one.place is not None}
        self._writers = {name: one.write for name, one in self.typed.items()}
        self._fields = TypedFields({name: one.declared for name, one in self.typed.items()})
        self._same = {name: one.declared for name, one in self.typed.items() if one.comes_back}
        self._others = TypedFields(
            {name: one.declared for name, one in self.typed.items() if name not in self._same}
        )
        self.is_plain = not (self.typed or self.left_out or self.loose)

    def _look(
        self,
        function: Callable[..., Any],
        name: str,
        parameter: inspect.Parameter,
        ignore: Collection[str],
        names: Mapping[str, Any],
    ) -> DeclaredType:
        if name in _THEMSELVES and name == next(iter(self._parameters)):
            return DeclaredType(ABSENT, TypeKind.OPAQUE)
        if parameter.annotation is parameter.empty:
            return DeclaredType(ABSENT, TypeKind.PLAIN)
        declared = resolved(function, parameter.annotation, names)
        if declared is ABSENT:
            return DeclaredType(ABSENT, TypeKind.PLAIN)
        if parameter.kind is parameter.VAR_POSITIONAL:
            declared = tuple[declared, ...]  # type: ignore[valid-type]
        elif parameter.kind is parameter.VAR_KEYWORD:
            declared = dict[str, declared]  # type: ignore[valid-type]
        try:
            return declared_type(declared)
        except ConfigError as error:
            if name in ignore:
                return DeclaredType(declared, TypeKind.OPAQUE)
            raise ConfigError(f"{self._name}, parameter {name}: {error}") from None

    @property
    def caller_brings(self) -> list[str]:
        """The parameters without which a call cannot be made, and that only a caller has."""
        return [
            name
            for name, one in self._parameters.items()
            if name in self.left_out | self.loose and one.default is one.empty and one.kind not in _EMPTY
        ]

    def check_key(self, text: str, field: Field) -> None:
        """A key is made of content, and of values that are spelled in one way only."""
        name, *below = field.path
        if name in self.left_out | self.loose:
            raise BadTemplate(
                f"key={text!r}: {name!r} is not part of the event; take an argument that is content"
            )
        place = self.places[name].at(tuple(below)) if name in self.places else None
        if place is None or place.spell is None:
            return
        if place.spell is plain_decimal:
            raise BadTemplate(
                f"key={text!r}: {field.name!r} is a decimal, and 1.10 and 1.1 would be two keys; take an id"
            )
        if field.kind not in (FieldKind.TIMESTAMP, FieldKind.DATE):
            raise BadTemplate(
                f"key={text!r}: {field.name!r} is a time, and one time in two offsets would be two keys;"
                f" write {{{field.name}:timestamp}}"
            )

    def event(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as JSON, without those that are not content; raises EventNotStorable."""
        event, writers, left_out = {}, self._writers, self.left_out
        name, value = "", None
        try:
            for name, value in arguments.items():
                if (write := writers.get(name)) is not None:
                    event[name] = write(value)
                elif name not in left_out and (name not in self.loose or is_json(value)):
                    event[name] = value
        except Exception as error:
            raise EventNotStorable(
                f"{self._name}: {name} is a {type(value).__name__} that cannot be stored ({_plain(error)});"
                f" pass a {self._declared(name)}, or leave it out of the event: ignore=[{name!r}]"
            ) from error
        return event

    def checked(self, event: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as every later attempt gets them; raises EventNotStorable if they would differ."""
        is_quick = all(_is_exactly(arguments[name], kind) for name, kind in self._same.items())
        try:
            restored = (self._others if is_quick else self._fields).read(event)
        except InputRefused as refused:
            name = refused.path.partition(".")[0]
            raise EventNotStorable(f"{self._name}: {refused}; pass a {self._declared(name)}") from None
        for name, value in restored.items():
            given = arguments[name]
            if type(value) is type(given) and value == given:
                continue
            if not _is_same(given, value, event[name]):
                raise EventNotStorable(
                    f"{self._name}: {name} is a {type(given).__name__} that would come back from JSON as"
                    f" another value; pass a {self._declared(name)}, of a class that compares by value"
                )
        if len(restored) == len(arguments):
            return restored
        return {**arguments, **_copies(event, self.typed), **restored}

    def restored(self, event: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a stored event; raises InputRefused, or OnlyTheCaller if one is not stored."""
        missing = [name for name in self.caller_brings if name not in event]
        if missing:
            raise OnlyTheCaller(
                f"{', '.join(missing)} of {self._name} is not stored: call it again with the same arguments"
            )
        return {**event, **self._fields.read(event)}

    def defaults(self) -> dict[str, bytes]:
        """What absent arguments stand for: a parameter that is added later changes no call made before."""
        found = {}
        for name, parameter in self._parameters.items():
            value = _EMPTY.get(parameter.kind, parameter.default)
            if value is parameter.empty or name in self.left_out:
                continue
            try:
                kept = to_json(value) if name in self.typed else value
                place = self.places.get(name)
                found[name] = canonical_json(kept if place is None else place.spelled(kept))
            except Exception:  # noqa: BLE001  then no call with it can be stored either
                continue
        return found

    def _declared(self, name: str) -> str:
        declared = self.typed[name].declared if name in self.typed else "value"
        return str(getattr(declared, "__name__", declared))


def is_json(value: Any) -> bool:
    """Whether a value can be stored as it is."""
    try:
        canonical_json(value)
    except EventNotStorable:
        return False
    return True


def _copies(event: dict[str, Any], typed: Collection[str]) -> dict[str, Any]:
    return {name: copied(value) for name, value in event.items() if name not in typed}


def _is_exactly(value: Any, kind: Any) -> bool:
    return type(value) is kind and (kind is not Decimal or value.is_finite())


def _is_same(given: Any, restored: Any, written: Any) -> bool:
    """Whether a value came back, where its type differs or its class does not compare by value."""
    if type(given) is not type(restored):
        is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
        return is_number and bool(given == restored)
    compares: Any = type(given).__eq__
    return compares is object.__eq__ and bool(to_json(restored) == written)


def _plain(error: Exception) -> str:
    """Why a value cannot be written; msgspec names types, anything else might name values."""
    known = isinstance(error, (msgspec.MsgspecError, NotImplementedError, TypeError))
    return str(error) if known else type(error).__name__
