"""Reads JSON from strangers: what two parsers might read differently is refused, not guessed.

For bodies whose signature was already checked on the raw bytes.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from oncegate.errors import MalformedRequest
from oncegate.model.limits import DEPTH_MAX, DIGITS_MAX, VALUES_MAX, has_more_values, is_nested_beyond
from oncegate.model.numbers import exact_float
from oncegate.model.plainjson import NOT_PLAIN, read_plainly


def parse_strictly(body: bytes) -> Any:
    """The document, or MalformedRequest: bad UTF-8, NaN, repeated names, lost digits, too deep or many."""
    if has_more_values(body, VALUES_MAX):
        raise MalformedRequest(f"the body has more than {VALUES_MAX} JSON values; send fewer at once")
    if is_nested_beyond(body, DEPTH_MAX):
        raise MalformedRequest(f"the body is nested more than {DEPTH_MAX} deep")
    value = read_plainly(body)
    return parse_closely(body) if value is NOT_PLAIN else value


def parse_closely(body: bytes) -> Any:
    """The same for whatever may be wrong with it, apart from its depth."""
    try:
        return _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise MalformedRequest("the body is not UTF-8") from None
    except ValueError as error:
        raise MalformedRequest(f"the body cannot be read: {str(error)[:100]}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedRequest("the body has an object with the same name twice")
    return found


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS_MAX:
        raise MalformedRequest(f"the body has an integer of more than {DIGITS_MAX} digits")
    return int(text)


def _constant(text: str) -> NoReturn:
    raise MalformedRequest(f"the body has {text}, which is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=exact_float, parse_constant=_constant
)
