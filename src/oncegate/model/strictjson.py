"""JSON from outside, read strictly: what two readers could read differently is refused.

Called after the signature was checked on the raw bytes. Must never be replaced by a lenient reader: a
duplicate name or a number that loses digits would give one event two meanings.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from oncegate.errors import MalformedRequest
from oncegate.model.limits import DEPTH_MAX, DIGITS_MAX, VALUES_MAX, has_more_values, is_nested_beyond
from oncegate.model.numbers import exact_float
from oncegate.model.plainjson import NOT_PLAIN, read_plainly


def read_json(body: bytes, values_max: int = VALUES_MAX) -> Any:
    """Reads a JSON text, or raises MalformedRequest with the reason."""
    if len(body) > values_max and has_more_values(body, values_max):  # a value takes a byte at least
        raise MalformedRequest(f"the body has more than {values_max} JSON values; send fewer at once")
    brackets = body.count(b"[") + body.count(b"{")
    if brackets > DEPTH_MAX and is_nested_beyond(body, DEPTH_MAX):  # few cannot be nested so deep
        raise MalformedRequest(f"the body is nested more than {DEPTH_MAX} deep")
    value = read_plainly(body)
    return read_closely(body) if value is NOT_PLAIN else value


def read_closely(body: bytes) -> Any:
    """The same for whatever may be wrong with it, apart from its depth."""
    try:
        text = body.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise MalformedRequest("the body is not UTF-8") from None
    if text.startswith("\ufeff"):
        raise MalformedRequest("the body begins with a byte order mark")
    try:
        return _DECODER.decode(text)
    except MalformedRequest:
        raise
    except (ValueError, RecursionError):
        raise MalformedRequest("the body is not JSON") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedRequest("an object has the same name twice")
    return found


def _constant(name: str) -> NoReturn:
    raise MalformedRequest(f"{name} is not JSON")


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS_MAX:
        raise MalformedRequest(f"a number has more than {DIGITS_MAX} digits")
    return int(text)


def _number(text: str) -> float:
    try:
        return exact_float(text)
    except ValueError as error:
        raise MalformedRequest(str(error)) from None


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_number
)
