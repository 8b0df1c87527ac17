"""An application's response as it is kept: status, the headers that are safe to repeat, and the body.

Must never keep a header that may carry a secret: only those on a list are kept, and some can never be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from msgspec import Struct

from oncegate.errors import ConfigError

REPLAYED_HEADER: Final = "idempotency-replayed"

Headers = tuple[tuple[str, str], ...]

SAFE_HEADERS: Final = frozenset(
    {
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-location",
        "content-type",
        "etag",
        "last-modified",
        "link",
        "location",
        "vary",
    }
)
NEVER_KEPT: Final = frozenset(
    {
        "authentication-info",
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "proxy-authenticate",
        "proxy-authorization",
        "set-cookie",
        "set-cookie2",
        "transfer-encoding",
        "www-authenticate",
    }
)

# Answers about now or about the caller, not about the request: the same request may get another one.
_NOT_FINAL: Final = frozenset({401, 403, 407, 408, 409, 421, 423, 425, 429})


class Reply(Struct, frozen=True):
    """A response. `is_too_large` stands for one that was larger than can be kept."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    is_too_large: bool = False

    @property
    def is_final(self) -> bool:
        """Whether the same request can only ever get this response: a failure of ours is not that."""
        return self.status < 500 and self.status not in _NOT_FINAL


def kept_headers_of(extra: Collection[str]) -> frozenset[str]:
    """The names of headers to keep; raises ConfigError for one that must never be."""
    if isinstance(extra, str):
        raise ConfigError("keep_headers= is a list of header names, such as ['X-Order-Id']")
    wanted = frozenset(name.lower() for name in extra)
    refused = sorted(wanted & NEVER_KEPT)
    if refused:
        raise ConfigError(f"keep_headers: {refused[0]} may carry a secret or belongs to one connection")
    return SAFE_HEADERS | wanted


def as_kept(reply: Reply, kept: frozenset[str]) -> Reply:
    """The part of a response that later arrivals are given."""
    headers = tuple((name, value) for name, value in reply.headers if name.lower() in kept)
    return Reply(reply.status, headers, reply.body, reply.is_too_large)


def can_have_body(status: int) -> bool:
    """Whether a response of this status has a body, and so a length to tell (RFC 9110, 8.6)."""
    return status >= 200 and status not in (204, 304)


def text_headers(pairs: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers as ASGI has them, as text."""
    return tuple((bytes(name).decode("latin-1"), bytes(value).decode("latin-1")) for name, value in pairs)


class ResponseBuffer:
    """Puts a body together from its parts, up to a limit."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._length = 0
        self.is_too_large = False

    def add(self, part: bytes) -> None:
        """Adds a part; beyond the limit nothing is held any more."""
        self._length += len(part)
        if self._length > self._bytes_max:
            self.is_too_large = True
            self._parts.clear()
        elif part:
            self._parts.append(part)

    @property
    def body(self) -> bytes:
        """What has come; nothing if it was too much."""
        return b"".join(self._parts)
