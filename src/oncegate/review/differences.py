"""What people see of an event's content before they decide: declared fields, and names that differ.

Names of fields are always shown; values only of fields that the surface declares (`show`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from oncegate.model.paths import MISSING, lookup, parse_path

NAMES_MAX: Final = 12
VALUE_LENGTH_MAX: Final = 80
_DEPTH_MAX: Final = 6


def fields_of(body: bytes | None, show: Iterable[str]) -> list[tuple[str, str]]:
    """The declared fields of an event with their values as short texts; what is missing is left out."""
    event = _read(body)
    found = [(name, lookup(event, parse_path(name))) for name in show]
    return [(name, _text(value)) for name, value in found if value is not MISSING]


def differing(one: bytes | None, other: bytes | None) -> list[str] | None:
    """The names of the fields in which two events differ; None where one is not kept or not JSON."""
    first, second = _read(one), _read(other)
    if not isinstance(first, dict) or not isinstance(second, dict):
        return None
    left, right = dict(_leaves(first)), dict(_leaves(second))
    return [name for name in {**left, **right} if left.get(name, MISSING) != right.get(name, MISSING)]


def difference(one: bytes | None, other: bytes | None) -> str:
    """The same as words; empty where it cannot be said."""
    names = differing(one, other)
    if names is None:
        return ""
    if not names:
        return "they differ in no field"
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"they differ in: {', '.join(name[:VALUE_LENGTH_MAX] for name in names[:NAMES_MAX])}{more}"


def _read(body: bytes | None) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return None


def _leaves(node: dict[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        if isinstance(value, dict) and value and depth < _DEPTH_MAX:
            yield from _leaves(value, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", value


def _text(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 1]}…"
