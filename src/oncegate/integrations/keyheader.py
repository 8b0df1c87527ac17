"""The `Idempotency-Key` header: a structured-field string (RFC 9651), read strictly.

Must never guess: a key read in two ways would be two keys for one request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

KEY_LENGTH_MAX: Final = 255

_QUOTED: Final = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_BARE: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z:/=]+")


class BadKeyHeader(ValueError):
    """The header is not one quoted string of a usable length."""


def read_key_header(values: Sequence[bytes], *, bare_keys: bool = False) -> str:
    """Reads the key from the header's occurrences, or raises BadKeyHeader with the next step.

    With `bare_keys`, a key without quotes is taken too, as some clients send it; quoted or not, the same
    characters are the same key.
    """
    if len(values) != 1:
        raise BadKeyHeader("send exactly one Idempotency-Key header")
    text = values[0].decode("latin-1").strip(" ")
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        key = re.sub(r'\\(["\\])', r"\1", quoted[1])
    elif bare_keys and _BARE.fullmatch(text):
        key = text
    else:
        raise BadKeyHeader(
            'the key is a quoted string of ASCII characters, such as "8e03978e-40d5-43dd-bc93-6894a57f9324"'
        )
    if not 0 < len(key) <= KEY_LENGTH_MAX:
        raise BadKeyHeader(f"a key has 1 to {KEY_LENGTH_MAX} characters")
    return key
