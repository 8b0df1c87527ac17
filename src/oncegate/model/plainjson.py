"""JSON that no two readers could read differently, read quickly; most of what comes is such.

The strict readers ask here first, and read for themselves whatever is not certainly plain: they say what is
wrong with it, if anything is. Must never accept what they refuse, and never read it otherwise than they do.

The C reader refuses what JSON does not have, and keeps every digit of an integer. About one thing it keeps
silent: of a name that comes twice it drops the first value. Every member has a colon of its own, and colons
in texts stay colons, so what is written again has as many as what was read, unless a member was dropped.
Only an escape with a number could hide a colon on the way in; texts with one are left to strict readers.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import DecodeError
from msgspec.json import Decoder, Encoder

from oncegate.model.limits import DIGITS_MAX

NOT_PLAIN: Final = object()

_decode: Final = Decoder().decode
_encode: Final = Encoder().encode
_DIGITS_AS_NINES: Final = bytes.maketrans(b"012345678", b"999999999")
_TOO_MANY: Final = b"9" * (DIGITS_MAX + 1)


def read_plainly(body: bytes) -> Any:
    """The document, or NOT_PLAIN: then a strict reader has to look. Its depth was checked before."""
    if b"\\" in body and b"\\u" in body:
        return NOT_PLAIN
    if len(body) > DIGITS_MAX and _TOO_MANY in body.translate(_DIGITS_AS_NINES):
        return NOT_PLAIN  # perhaps a number of too many digits, perhaps a text
    try:
        value = _decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return NOT_PLAIN
    return value if _encode(value).count(b":") == body.count(b":") else NOT_PLAIN
