"""What every way of checking a request has in common, and its view of a request's headers.

A scheme looks at headers and raw bytes before they are parsed. Whatever a request holds, it returns
`Authentic` or raises MalformedRequest (400) or NotAuthentic (401): never anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from oncegate.errors import ConfigError, MalformedRequest, NotAuthentic

TOLERANCE_S: Final = 300  # as Standard Webhooks and Stripe have it
ENTRIES_MAX: Final = 8  # signatures looked at in one request: the work is bounded
ENTRY_LENGTH_MAX: Final = 4096
SECRETS_MAX: Final = 8
PLAIN_SECRET_BYTES_MIN: Final = 16  # for schemes that leave the choice of a secret to people

_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}", re.ASCII)

T = TypeVar("T")


class Headers:
    """A request's headers, read by name whatever their case; the ones asked for must come once.

    Few are ever asked for, so a value becomes text when it is.
    """

    __slots__ = ("_repeats", "_values")

    def __init__(self, given: Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]) -> None:
        pairs = given.items() if isinstance(given, Mapping) else given
        values: dict[str, str | bytes] = {}
        self._repeats: dict[str, int] = {}
        for name, value in pairs:
            known = (name if isinstance(name, str) else name.decode("latin-1")).lower()
            if known in values:
                self._repeats[known] = self._repeats.get(known, 1) + 1
            values[known] = value
        self._values = values

    def find(self, name: str) -> str | None:
        """The header's value, None if it is missing or empty; MalformedRequest if it came twice."""
        value = self._values.get(name)
        if value is None:
            return None
        if name in self._repeats:
            raise MalformedRequest(f"{name} is there {self._repeats[name]} times")
        return _text(value).strip(" \t") or None

    def only(self, name: str) -> str | None:
        """The header's value if it came exactly once; for what may be left out as well."""
        value = self._values.get(name)
        return None if value is None or name in self._repeats else _text(value).strip(" \t")

    def require(self, name: str) -> str:
        """The header's value, or MalformedRequest."""
        value = self.find(name)
        if value is None:
            raise MalformedRequest(f"{name} is missing")
        return value


class _WireNames(dict[str, bytes]):
    """Names as they come over the wire; only those that our own code asks for are ever kept."""

    def __missing__(self, name: str) -> bytes:
        self[name] = wire = name.encode("latin-1")
        return wire


_WIRE_NAMES: Final = _WireNames()


class LoweredHeaders(Headers):
    """The same from a server that has lowered the names already: none is looked at but those asked for.

    `raw` has the last of headers that came several times, which `has_repeats` tells of.
    """

    __slots__ = ("_pairs", "has_repeats", "raw")

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self.raw, self._pairs = dict(pairs), pairs
        self.has_repeats = len(self.raw) != len(pairs)

    def find(self, name: str) -> str | None:
        """The header's value, None if it is missing or empty; MalformedRequest if it came twice."""
        wanted = _WIRE_NAMES[name]
        value = self.raw.get(wanted)
        if value is None:
            return None
        if self.has_repeats and (times := self._times(wanted)) > 1:
            raise MalformedRequest(f"{name} is there {times} times")
        return value.decode("latin-1").strip(" \t") or None

    def only(self, name: str) -> str | None:
        """The header's value if it came exactly once; for what may be left out as well."""
        wanted = _WIRE_NAMES[name]
        value = self.raw.get(wanted)
        if value is None or (self.has_repeats and self._times(wanted) > 1):
            return None
        return value.decode("latin-1").strip(" \t")

    def has_none(self, names: frozenset[bytes]) -> bool:
        """Whether none of these headers is there."""
        return names.isdisjoint(self.raw)

    def sole(self, name: bytes) -> bytes | None:
        """The header's value as it came, if it came exactly once."""
        value = self.raw.get(name)
        return None if self.has_repeats and self._times(name) > 1 else value

    def _times(self, wanted: bytes) -> int:
        return sum(name == wanted for name, _ in self._pairs)


class Authentic(Struct, frozen=True):
    """A request that its sender really sent.

    `message_id` and `sent_at_s` are set only where the signature covers them.
    """

    message_id: str | None = None
    sent_at_s: int | None = None


class Scheme(Protocol):
    """One way of telling that a request is its sender's.

    `signs_id` says whether the signature covers an id of the request, so that `verify` returns one.
    """

    @property
    def signs_id(self) -> bool:
        """Whether every authentic request has a signed id."""

    def verify(self, headers: Headers, body: bytes, now_s: int) -> Authentic:
        """Returns what is certain about a request, or raises MalformedRequest or NotAuthentic."""


def read_timestamp(text: str, name: str, now_s: int, tolerance_s: int) -> int:
    """Reads seconds since 1970: 400 if they are not plain digits, 401 if they are not about now."""
    if _TIMESTAMP.fullmatch(text) is None:
        raise MalformedRequest(f"{name} is not a number of seconds")
    seconds = int(text)
    if abs(seconds - now_s) > tolerance_s:
        raise NotAuthentic(f"{name} is more than {tolerance_s} s from now")
    return seconds


def check_secrets(secrets: Sequence[T]) -> tuple[T, ...]:
    """One to eight secrets: more than one while they are being rotated."""
    if isinstance(secrets, (str, bytes)) or not 0 < len(secrets) <= SECRETS_MAX:
        raise ConfigError(f'secrets are a list of 1 to {SECRETS_MAX}, such as secrets=["…"]')
    return tuple(secrets)


def read_plain_secrets(secrets: Sequence[str]) -> tuple[bytes, ...]:
    """Secrets that people chose, as bytes; short ones are refused."""
    encoded = tuple(secret.encode() for secret in check_secrets(secrets))
    if any(len(secret) < PLAIN_SECRET_BYTES_MIN for secret in encoded):
        raise ConfigError(f"a secret has fewer than {PLAIN_SECRET_BYTES_MIN} bytes and can be guessed")
    return encoded


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")
