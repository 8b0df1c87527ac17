"""JSON that no two readers could read differently, read quickly; most of what comes is such.

The strict reader (`strictjson`) asks here first, and reads for itself what is not certainly plain: it says
what is wrong with it. Must never accept what it refuses, nor read it otherwise than it does.

The C reader refuses what JSON does not have, and keeps every digit of an integer. About two things it keeps
silent. Of a name that comes twice it drops the first value. Every member has a colon of its own, and colons
in texts stay colons, so what is written again has as many as what was read, unless a member was dropped.
Only an escape with a number could hide a colon on the way in; texts with one are left to the strict reader.
And of a number with a fraction or an exponent it drops the digits that a double has no room for. That takes
sixteen of them or an exponent: where a body has anything alike, each such number is asked about.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import DecodeError
from msgspec.json import Decoder, Encoder

from oncegate.model.limits import DIGITS_MAX
from oncegate.model.numbers import SURE_LENGTH, exact_float

NOT_PLAIN: Final = object()

_decode: Final = Decoder().decode
_decode_closely: Final = Decoder(float_hook=exact_float).decode
_encode: Final = Encoder().encode
_DIGITS_AS_NINES: Final = bytes.maketrans(b"012345678", b"999999999")
_TOO_MANY: Final = b"9" * (DIGITS_MAX + 1)
_NUMBERS_AS_NINES: Final = bytes.maketrans(b"012345678.E", b"9999999999e")
_MAY_BE_LONG: Final = b"9" * (SURE_LENGTH + 1)
_MAY_BE_EXPONENT: Final = b"9e"


def read_plainly(body: bytes) -> Any:
    """The document, or NOT_PLAIN: then a strict reader has to look. Its depth was checked before."""
    if b"\\" in body and b"\\u" in body:
        return NOT_PLAIN
    numbers = body.translate(_NUMBERS_AS_NINES)
    has_long = _MAY_BE_LONG in numbers
    if has_long and _TOO_MANY in body.translate(_DIGITS_AS_NINES):
        return NOT_PLAIN  # perhaps a number of too many digits, perhaps a text
    try:
        value = _decode_closely(body) if has_long or _MAY_BE_EXPONENT in numbers else _decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return NOT_PLAIN
    return value if _encode(value).count(b":") == body.count(b":") else NOT_PLAIN
