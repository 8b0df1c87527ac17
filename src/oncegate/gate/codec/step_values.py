"""Step results that plain JSON would change: tuples, decimals, dates and the like, kept with their types.

A finished step whose result is lost is called again, or ends with a person; what can be kept is kept. Only
values of exactly these types, in any nesting; everything else is refused. Never pickle.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Any, Final
from uuid import UUID

_PREFIX: Final = b'{"$oncegate":'
_PLAIN: Final = (type(None), bool, int, str)
_TEXTS: Final[dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]]] = {
    Decimal: ("decimal", str, Decimal),
    Fraction: ("fraction", str, Fraction),
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
    time: ("time", time.isoformat, time.fromisoformat),
    UUID: ("uuid", str, UUID),
    bytes: ("bytes", lambda value: b64encode(value).decode(), b64decode),
}
_LISTS: Final[dict[type, str]] = {tuple: "tuple", set: "set", frozenset: "frozenset"}
_READ: Final[dict[str, Callable[[Any], Any]]] = {
    **{name: read for name, _, read in _TEXTS.values()},
    "tuple": lambda items: tuple(_restored(item) for item in items),
    "set": lambda items: {_restored(item) for item in items},
    "frozenset": lambda items: frozenset(_restored(item) for item in items),
    "timedelta": lambda parts: timedelta(*parts),
    "dict": lambda items: {_restored(name): _restored(value) for name, value in items},
}


def is_typed(body: bytes) -> bool:
    """Whether a stored result was written here; no other result may begin like this."""
    return body.startswith(_PREFIX)


def encode(value: Any) -> bytes | None:
    """A value with the types in it, or None if it would come back as something else."""
    try:
        body = json.dumps({"$oncegate": _tagged(value)}, separators=(",", ":")).encode()
        return body if decode(body) == value else None
    except (ValueError, TypeError, RecursionError, ArithmeticError):
        return None


def decode(body: bytes) -> Any:
    """What `encode` was given."""
    return _restored(json.loads(body)["$oncegate"])


def _tagged(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is float and isfinite(value)):
        return value
    if kind is list:
        return [_tagged(item) for item in value]
    if kind is dict:
        return {"dict": [[_tagged(name), _tagged(item)] for name, item in value.items()]}
    if kind in _LISTS:
        return {_LISTS[kind]: [_tagged(item) for item in value]}
    if kind is timedelta:
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    if kind in _TEXTS:
        name, write, _ = _TEXTS[kind]
        return {name: write(value)}
    raise TypeError(f"a {kind.__name__} cannot be kept")


def _restored(kept: Any) -> Any:
    if isinstance(kept, list):
        return [_restored(item) for item in kept]
    if isinstance(kept, dict):
        ((name, inside),) = kept.items()
        return _READ[name](inside)
    return kept
