"""Values that are equal although their JSON differs: the decimals 1.10 and 1.1, one instant in two offsets.

A function's types say where its arguments hold such values. The fingerprint is made of one spelling of
each, so that a second call with an equal value is a repeat and not a conflict. What is stored keeps
the spelling that came. Pure: no types of users' programs are known here, only places in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

_EXPANDED_MAX: Final = 40  # digits; a number that is longer keeps its exponent


def plain_decimal(text: str) -> str:
    """The one spelling of a decimal number: no trailing zeros, no exponent unless it is very long."""
    if "E" not in text and "e" not in text:
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        return "0" if text in ("-0", "", "-") else text
    value = Decimal(text)
    if not value.is_finite():
        return text
    sign, digits, exponent = value.as_tuple()
    number = "".join(map(str, digits)).rstrip("0")
    if not number:
        return "0"
    shift = int(exponent) + len(digits) - len(number)
    minus = "-" if sign else ""
    if abs(shift) + len(number) > _EXPANDED_MAX:
        return f"{minus}{number}E{shift}"
    return plain_decimal(format(Decimal((sign, tuple(map(int, number)), shift)), "f"))


def plain_instant(text: str) -> str:
    """The one spelling of a time with an offset, in UTC; a time without one stays as it is."""
    if text.endswith("Z"):
        return text
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        return text
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"


class Place:
    """Where in a JSON value such values are: at the value itself, in its fields, or in its elements."""

    __slots__ = ("elements", "fields", "others", "spell")

    def __init__(self, spell: Callable[[str], str] | None = None) -> None:
        self.spell = spell
        self.fields: dict[str, Place] = {}
        self.elements: Place | None = None
        self.others: Place | None = None  # of a mapping whose keys are not known

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to spell, here or below."""
        return self.spell is None and not self.fields and self.elements is None and self.others is None

    def spelled(self, value: Any) -> Any:
        """The value with one spelling of each; the value itself where nothing changes."""
        if self.spell is not None and type(value) is str:
            return _spelled(self.spell, value)
        if self.spell is plain_decimal and type(value) is int:
            return str(value)
        if type(value) is dict:
            return self._mapping(value)
        return self._sequence(value) if type(value) in (list, tuple) else value

    def _sequence(self, value: list[Any]) -> list[Any]:
        if self.elements is not None:
            found = [self.elements.spelled(one) for one in value]
        else:
            found = [
                one if (below := self.fields.get(str(place))) is None else below.spelled(one)
                for place, one in enumerate(value)
            ]
        return found if any(map(_is_other, found, value)) else value

    def _mapping(self, value: dict[str, Any]) -> dict[str, Any]:
        return spelled_fields(value, self.fields if self.others is None else dict(_all_of(value, self)))

    def at(self, path: tuple[str, ...]) -> Place | None:
        """The place that a path leads to; None where nothing is to be spelled there."""
        place: Place | None = self
        for name in path:
            if place is not None:
                place = (
                    place.fields.get(name) or place.others or (place.elements if name.isdigit() else None)
                )
        return place


def spelled_fields(value: dict[str, Any], places: Mapping[str, Place]) -> dict[str, Any]:
    """A mapping with one spelling of each of its fields; the mapping itself where nothing changes."""
    changed = {}
    for name, place in places.items():
        if name in value and (found := place.spelled(value[name])) is not value[name]:
            changed[name] = found
    return {**value, **changed} if changed else value


def _all_of(value: dict[str, Any], place: Place) -> list[tuple[str, Place]]:
    others = place.others
    return [(name, found) for name in value if (found := place.fields.get(name, others)) is not None]


def _spelled(spell: Callable[[str], str], text: str) -> str:
    try:
        found = spell(text)
    except (ValueError, ArithmeticError):
        return text  # it is none; the reader of the event says so
    return text if found == text else found


def _is_other(one: object, another: object) -> bool:
    return one is not another
