"""What came of one HTTP request: a response, or why there was none. Values only."""

from __future__ import annotations

import unicodedata
from datetime import timedelta
from enum import Enum
from typing import Final

from msgspec import Struct

SHOWN_LENGTH_MAX: Final = 300


class Phase(Enum):
    """How far a request had come."""

    RESOLVE = "resolving the name"
    CONNECT = "connecting"
    TLS = "agreeing on TLS"
    ANSWER = "waiting for the answer"


class FailureKind(Enum):
    """Why there is no response."""

    REFUSED_ADDRESS = "address refused"
    DNS = "name not found"
    CONNECT = "no connection"
    TLS = "TLS failed"
    TIMEOUT = "timed out"
    CLOSED = "connection closed"
    PROTOCOL = "not HTTP"
    TOO_LARGE = "response headers too large"


class Response(Struct, frozen=True):
    """A complete response, or one that was cut at the limit.

    `retry_after` is what the receiver asks for, within [0, 24 h]. `body` is at most the first 16 KB.
    """

    status: int
    elapsed: timedelta
    retry_after: timedelta | None = None
    body: bytes = b""
    is_cut: bool = False

    @property
    def shown(self) -> str:
        """The beginning of the body as one printable line, for people."""
        return printable(self.body)


class NoResponse(Struct, frozen=True):
    """No response came. Where `was_sent`, the receiver may have got the request all the same."""

    kind: FailureKind
    phase: Phase
    detail: str
    elapsed: timedelta
    was_sent: bool = False


Exchange = Response | NoResponse


def printable(body: bytes, length_max: int = SHOWN_LENGTH_MAX) -> str:
    """Foreign bytes as one line that is safe to show in a log or on a page's text."""
    text = body[: 4 * length_max].decode("utf-8", "replace")
    if not (text.isascii() and text.isprintable()):
        text = "".join(_shown(character) for character in text)
    line = " ".join(text.split())
    return line if len(line) <= length_max else line[: length_max - 1] + "…"


def _shown(character: str) -> str:
    if character.isspace():
        return " "
    # Controls, escapes, and characters that turn a line around or cannot be seen.
    return "\ufffd" if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn"} else character
