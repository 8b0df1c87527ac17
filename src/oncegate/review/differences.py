"""What people see of an event's content before they decide: declared fields, and names that differ.

Names of fields are always shown; values only of fields that the surface declares (`show`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from oncegate.model.differences import differing, names_text, read_event
from oncegate.model.paths import MISSING, lookup, parse_path

VALUE_LENGTH_MAX: Final = 80


def fields_of(body: bytes | None, show: Iterable[str]) -> list[tuple[str, str]]:
    """The declared fields of an event with their values as short texts; what is missing is left out."""
    event = read_event(body)
    found = [(name, lookup(event, parse_path(name))) for name in show]
    return [(name, _text(value)) for name, value in found if value is not MISSING]


def difference(one: bytes | None, other: bytes | None) -> str:
    """The same as words; empty where it cannot be said."""
    names = differing(one, other)
    if names is None:
        return ""
    if not names:
        return "they differ in no field"
    return f"they differ in: {names_text(names)}"


def _text(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 1]}…"
