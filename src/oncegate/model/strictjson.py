"""Reads JSON from strangers: what two parsers might read differently is refused, not guessed.

For bodies whose signature was already checked on the raw bytes.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from oncegate.errors import MalformedRequest

DEPTH_MAX: Final = 64
INTEGER_DIGITS_MAX: Final = 19  # what 64 bits hold; larger numbers come as text


def parse_strictly(body: bytes) -> Any:
    """The document, or MalformedRequest: bad UTF-8, NaN, repeated names, huge integers, depth over 64."""
    try:
        document = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise MalformedRequest("the body is not UTF-8") from None
    except RecursionError:
        raise MalformedRequest(f"the body is nested more than {DEPTH_MAX} deep") from None
    except ValueError as error:
        raise MalformedRequest(f"the body is not JSON: {str(error)[:100]}") from None
    _check_depth(document)
    return document


def _check_depth(document: Any) -> None:
    level = [document]
    for _ in range(DEPTH_MAX + 1):
        level = [child for value in level for child in _children(value)]
        if not level:
            return
    raise MalformedRequest(f"the body is nested more than {DEPTH_MAX} deep")


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedRequest("the body has an object with the same name twice")
    return found


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > INTEGER_DIGITS_MAX:
        raise MalformedRequest(f"the body has an integer of more than {INTEGER_DIGITS_MAX} digits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise MalformedRequest("the body has a number that is too large")
    return number


def _constant(text: str) -> NoReturn:
    raise MalformedRequest(f"the body has {text}, which is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
