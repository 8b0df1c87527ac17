"""Addresses as they may be shown: what in a URL may be a secret is replaced by an ellipsis.

For lists, pages, logs and errors. Errs towards hiding: a caller that needs the whole address asks for it.
Must never be used on what is called.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from oncegate.model.escape import visible

HIDDEN: Final = "…"
_PARTS: Final = re.compile(
    r"(?P<start>[A-Za-z][A-Za-z0-9+.-]*://)(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?:#.*)?",
    re.DOTALL,
)
_BETWEEN: Final = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]*://)")  # two addresses of a list
_VALUE: Final = re.compile(r"([^&;=]*)(=?)([^&;]*)")
_WORDS: Final = re.compile(r"[-_.~+:,@! ]+")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)
_TOKEN: Final = re.compile(r"[^\s\"',;:{}\[\]()<>]+")
_DIGITS_MIN: Final = 7  # shorter numbers are amounts, counts and dates
_PIECE_MIN: Final = 10  # shorter ones are words and numbers
_WORD_MAX: Final = 19  # longer ones are no words


def masked_excerpt(body: bytes, length_max: int = 200) -> str:
    """The first characters of a body on one line, without addresses, long numbers and random words."""
    text = " ".join(body[: 8 * length_max].decode("utf-8", "replace").split())
    shown = visible(_TOKEN.sub(_masked_token, text))
    return shown if len(shown) <= length_max else f"{shown[: length_max - 1]}{HIDDEN}"


def _masked_token(found: re.Match[str]) -> str:
    token = found[0]
    is_personal = "@" in token or sum(letter.isdigit() for letter in token) >= _DIGITS_MIN
    return HIDDEN if is_personal or _looks_random(token) else token


def masked_url(url: str) -> str:
    """The address without user names, passwords, query values, and parts of its path that look random.

    A list with commas, as for several brokers, is several addresses.
    """
    several = _BETWEEN.split(url)
    if len(several) > 1:
        return ",".join(map(masked_url, several))
    found = _PARTS.fullmatch(url)
    if found is None:
        return HIDDEN
    user, at, host = found["authority"].rpartition("@")
    path = "/".join(HIDDEN if _looks_random(part) else part for part in found["path"].split("/"))
    query = "" if found["query"] is None else "?" + _VALUE.sub(_hidden, found["query"][1:])
    return f"{found['start']}{HIDDEN + at if user else at}{host}{path}{query}"


def _hidden(value: re.Match[str]) -> str:
    name, equals, _ = value.groups()
    if not equals:
        return HIDDEN if _looks_random(name) else name
    return f"{name}={HIDDEN}"


def _looks_random(part: str) -> bool:
    """Whether a part of a path reads like a key: long, or letters and digits without order."""
    text = unquote(part)
    return _UUID.search(text) is not None or any(_is_random(piece) for piece in _WORDS.split(text))


def _is_random(piece: str) -> bool:
    if len(piece) < _PIECE_MIN or (piece.startswith("{") and piece.endswith("}")):
        return False
    digits = sum(letter.isdigit() for letter in piece)
    letters = sum(letter.isalpha() for letter in piece)
    inner = piece[1:]
    mixes_cases = not inner.islower() and not inner.isupper() and letters > 0
    return len(piece) > _WORD_MAX or (digits >= 2 and letters >= 2) or (mixes_cases and digits > 0)
