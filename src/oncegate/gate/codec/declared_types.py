"""Values of declared types as JSON and back: arguments of functions, and events of handlers.

A type is plain (its values are JSON already), typed (its values are written as JSON and restored), or
opaque (no value of it can be stored: a session, a client). Must never repeat a value in a message: it may
be personal data.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from oncegate.errors import ConfigError, InputRefused
from oncegate.gate.codec import models
from oncegate.model.same_values import Place, plain_decimal, plain_instant

ABSENT: Final[Any] = object()
_COME_BACK: Final = (UUID, Decimal, bytes, date)
_UNTYPED: Final = (Any, None, object, inspect.Parameter.empty)


class TypeKind(Enum):
    """How values of a type are kept."""

    PLAIN = "plain"
    TYPED = "typed"
    OPAQUE = "opaque"


class TypedFields:
    """Reads several named values of declared types from JSON in one go, and writes them."""

    __slots__ = ("_made_of", "_names")

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._names = frozenset(types)
        fields = [(name, declared, ABSENT) for name, declared in types.items()]
        self._made_of = msgspec.defstruct("TypedFields", fields, gc=False)

    def read(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The values that are there, by name; raises InputRefused, which names the place and no value."""
        try:
            made = msgspec.convert(found, self._made_of, str_keys=True, dec_hook=_restore)
        except msgspec.ValidationError as error:
            raise _refusal(str(error)) from None
        values = msgspec.structs.asdict(made)
        if self._names <= found.keys():
            return values
        return {name: value for name, value in values.items() if value is not ABSENT}


# A value as plain JSON, the same for equal sets; raises what msgspec or a model raises.
to_json: Final[Callable[[Any], Any]] = partial(
    msgspec.to_builtins, str_keys=True, order="deterministic", enc_hook=models.dump_quickly
)
# The same for values without sets and without keys that are not text, which is most of them.
_to_json_in_order: Final[Callable[[Any], Any]] = partial(msgspec.to_builtins, enc_hook=models.dump_quickly)
_WRITTEN_BY: Final[dict[Any, Callable[[Any], Any]]] = {Decimal: str}


class DeclaredType(Struct, frozen=True):
    """A type and how its values are stored; `place` is where equal values may differ in JSON."""

    declared: Any
    kind: TypeKind
    place: Place | None = None
    write: Callable[[Any], Any] = to_json

    @property
    def comes_back(self) -> bool:
        """Whether a finite value of exactly this type comes back as the same, and cannot be changed."""
        return any(self.declared is one for one in _COME_BACK)


def declared_type(declared: Any) -> DeclaredType:
    """Looks at a type; one that msgspec cannot tell apart in JSON counts as plain: its values must be JSON.

    Raises ConfigError for a type that can be stored but for something in it.
    """
    if any(declared is untyped for untyped in _UNTYPED):
        return DeclaredType(declared, TypeKind.PLAIN)
    from msgspec import inspect as types  # only programs with such functions pay for it

    try:
        info = types.type_info(declared)
    except Exception:  # noqa: BLE001  an annotation may be any expression
        return DeclaredType(declared, TypeKind.PLAIN)
    kind = _kind_of(info)
    if kind is not TypeKind.TYPED:
        return DeclaredType(declared, kind)
    if (found := _opaque_in(info, set())) is not None:
        raise ConfigError(
            f"{_name(declared)} has a {_name(found)} in it, which cannot be stored as JSON; leave that out,"
            " or leave the whole parameter out of the event: ignore=[…]"
        )
    place = _Places(types).of(info)
    write: Callable[[Any], Any] = to_json if _is_unordered(info, set()) else _to_json_in_order
    write = _WRITTEN_BY.get(declared, write) if isinstance(declared, type) else write
    return DeclaredType(declared, kind, None if place.is_empty else place, write)


def resolved(function: Callable[..., Any], annotation: Any, names: Mapping[str, Any] | None = None) -> Any:
    """An annotation as the type it names; ABSENT where that is not known at run time."""
    if not isinstance(annotation, (str, typing.ForwardRef)) and not typing.get_args(annotation):
        return annotation
    target = inspect.unwrap(getattr(function, "func", function))
    target = getattr(target, "__func__", target)
    if not hasattr(target, "__globals__"):  # an object that can be called
        target = getattr(type(target), "__call__", target)  # noqa: B004

    def shim() -> None: ...

    shim.__annotations__ = {"return": annotation}
    there = getattr(target, "__globals__", {})
    try:
        return typing.get_type_hints(
            shim, there, {**_nonlocals(target), **(names or {})}, include_extras=True
        )["return"]
    except Exception:  # noqa: BLE001  a name that only a type checker sees, or any other expression
        return ABSENT


def _nonlocals(function: Any) -> dict[str, Any]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells:
        return {}
    found = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _kind_of(info: Any) -> TypeKind:
    """Whether a type's values are JSON as they are, can be written as JSON, or neither."""
    name = type(info).__name__
    if name in ("AnyType", "NoneType", "BoolType", "IntType", "FloatType", "StrType", "LiteralType"):
        return TypeKind.PLAIN
    if name in ("CustomType", "ExtType", "RawType", "MemoryViewType"):
        return TypeKind.TYPED if _is_model(info) else TypeKind.OPAQUE
    if name == "ListType":
        return _at_most_typed(_kind_of(info.item_type))
    if name == "DictType" and type(info.key_type).__name__ in ("StrType", "AnyType"):
        return _at_most_typed(_kind_of(info.value_type))
    if name == "UnionType":
        kinds = {_kind_of(one) for one in info.types}
        for kind in (TypeKind.OPAQUE, TypeKind.TYPED):
            if kind in kinds:
                return kind
        return TypeKind.PLAIN
    return TypeKind.TYPED


def _at_most_typed(kind: TypeKind) -> TypeKind:
    return TypeKind.PLAIN if kind is TypeKind.PLAIN else TypeKind.TYPED


def _is_model(info: Any) -> bool:
    return hasattr(getattr(info, "cls", None), "model_validate")


def _opaque_in(info: Any, seen: set[int]) -> Any:
    """A type inside of another one that cannot be stored; None if there is none."""
    if id(info) in seen:
        return None
    seen.add(id(info))
    if type(info).__name__ == "CustomType":
        return None if _is_model(info) else info.cls
    for below in _inside(info):
        if (found := _opaque_in(below, seen)) is not None:
            return found
    return None


def _is_unordered(info: Any, seen: set[int]) -> bool:
    """Whether there are sets in a type's values, or keys that are not text."""
    if id(info) in seen:
        return False
    seen.add(id(info))
    name = type(info).__name__
    if name in ("SetType", "FrozenSetType", "AnyType"):
        return True
    if name == "DictType" and type(info.key_type).__name__ != "StrType":
        return True
    return any(_is_unordered(below, seen) for below in _inside(info))


def _inside(info: Any) -> list[Any]:
    found = [getattr(info, name) for name in ("item_type", "key_type", "value_type") if hasattr(info, name)]
    found += getattr(info, "item_types", None) or getattr(info, "types", None) or ()
    return [*found, *(field.type for field in getattr(info, "fields", ()))]


class _Places:
    """Finds where decimals and times are in values of a type, also of one that contains itself."""

    def __init__(self, types: Any) -> None:
        self._types = types
        self._known: dict[int, Place] = {}
        self._kept: list[Any] = []  # so that no other object gets the number of one that was seen

    def of(self, info: Any) -> Place:
        if (known := self._known.get(id(info))) is not None:
            return known
        self._kept.append(info)
        place = self._known[id(info)] = Place()
        self._fill(place, info)
        return place

    def _fill(self, place: Place, info: Any) -> None:
        name = type(info).__name__
        if name == "DecimalType":
            place.spell = plain_decimal
        elif name == "DateTimeType":
            place.spell = plain_instant
        elif name == "UnionType":
            fields = [one for one in info.types if _inside(one)]
            for one in info.types:
                if (
                    one not in fields or len(fields) == 1
                ):  # of two classes a field's name may mean two things
                    self._fill(place, one)
        elif name in ("ListType", "SetType", "FrozenSetType", "VarTupleType"):
            place.elements = self._wanted(info.item_type)
        elif name == "TupleType":
            for index, one in enumerate(info.item_types):
                self._add(place, str(index), one)
        elif name == "DictType":
            place.others = self._wanted(info.value_type)
        elif name == "CustomType":
            self._fill_model(place, info.cls)
        else:
            for field in getattr(info, "fields", ()):
                self._add(place, field.encode_name, field.type)

    def _fill_model(self, place: Place, model: Any) -> None:
        for name, field in getattr(model, "model_fields", {}).items():
            try:
                info = self._types.type_info(field.annotation)
            except Exception:  # noqa: BLE001  a type that only pydantic knows
                continue
            for spelling in {name, field.alias or name, field.serialization_alias or name}:
                self._add(place, spelling, info)

    def _add(self, place: Place, name: str, info: Any) -> None:
        if (found := self._wanted(info)) is not None:
            place.fields[name] = found

    def _wanted(self, info: Any) -> Place | None:
        is_open = id(info) in self._known  # it contains itself, and is not finished
        place = self.of(info)
        return place if is_open or not place.is_empty else None


def _restore(wanted: type, value: Any) -> Any:
    """A model from its JSON; what is said of one that does not fit has no value in it."""
    try:
        return models.restore(wanted, value)
    except Exception as error:  # noqa: BLE001  validators are the user's, and may raise anything
        raise ValueError(models.complaint(wanted, error)) from None


def _refusal(text: str) -> InputRefused:
    """msgspec names the types and the place of what does not fit, and no value."""
    detail, _, place = text.partition(" - at `")
    path = place.rstrip("`").removeprefix("$").removeprefix(".") or "$"
    return InputRefused("wrong_type", path, detail)


def _name(declared: Any) -> str:
    return str(getattr(declared, "__qualname__", declared))[:80]
