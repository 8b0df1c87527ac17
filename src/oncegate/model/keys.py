"""The key of an event: 24 bytes that are the same for the same event, for ever.

Called by the gate for every arrival, and by the command line to read a key back. Must never change:
another digest for the same event is a second effect. The golden vectors in the tests pin it.

Every component is preceded by its length and the parts by their count, so that no two different
inputs give the hash the same bytes; tenants and surfaces cannot reach into each other's keys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

from msgspec import Struct

from oncegate.errors import ConfigError, UsageError

KEY_BYTES: Final = 24

_ECHO_LENGTH_MAX: Final = 60
_KEY_TAG: Final = b"oncegate-key-1"
_QUARANTINE_TAG: Final = b"oncegate-quarantine-key-1"
_CONFLICT_TAG: Final = b"oncegate-conflict-key-1"
_CONFLICT_HEAD_BYTES: Final = 12  # what keys of other contents under one key begin with
_KEY_TEXT: Final = re.compile(r"[0-9a-f]{48}")
_LONE_SURROGATE: Final = "a key cannot be derived from a text with a lone surrogate"
_LENGTHS_MAX: Final = 256
_LENGTHS: Final = [length.to_bytes(8, "big") for length in range(_LENGTHS_MAX)]  # of nearly every part
_STEP_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Key(Struct, frozen=True, gc=False):
    """The identity of one event at one surface of one tenant."""

    digest: bytes

    def __post_init__(self) -> None:
        if len(self.digest) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(self.digest)}")

    @classmethod
    def from_text(cls, text: str) -> Key:
        """Return the key that `text` names; anything but 48 lower-case hex digits is refused."""
        if not isinstance(text, str) or _KEY_TEXT.fullmatch(text) is None:
            raise ConfigError(f"{_shown(text)} is not a key; a key is 48 hex digits, 0-9 and a-f")
        return cls(bytes.fromhex(text))

    @property
    def text(self) -> str:
        """The key as 48 hex digits: what is shown, logged and sent downstream."""
        return self.digest.hex()

    def step(self, name: str) -> str:
        """Return the key of one named step of the effect, for a downstream that takes a key."""
        check_step_name(name)
        return f"{self.digest.hex()}:{name}"

    def __str__(self) -> str:
        return self.text


def check_step_name(name: str) -> None:
    """Raise UsageError unless `name` can name a step."""
    if not isinstance(name, str) or not _names_a_step(name):
        raise UsageError(f"{_shown(name)} cannot name a step; use 1 to 64 of A-Z a-z 0-9 _ . -")


@lru_cache(maxsize=1024)
def _names_a_step(name: str) -> bool:
    return _STEP_NAME.fullmatch(name) is not None


def derive_key(tenant: str, surface: str, template_text: str, parts: Sequence[str]) -> Key:
    """Return the key of the event whose template fields read `parts`."""
    pieces = _scope(tenant, surface, template_text, len(parts))
    try:
        for part in parts:
            encoded = part.encode()
            length = len(encoded)
            pieces += (_LENGTHS[length] if length < _LENGTHS_MAX else length.to_bytes(8, "big")) + encoded
    except UnicodeEncodeError:
        raise UsageError(_LONE_SURROGATE) from None
    return Key(sha256(pieces).digest()[:KEY_BYTES])


def derive_quarantine_key(tenant: str, surface: str, payload_fingerprint: bytes) -> Key:
    """Return the key under which an event without a usable key of its own waits in quarantine."""
    components = (_encoded(tenant), _encoded(surface), payload_fingerprint)
    return Key(sha256(_QUARANTINE_TAG + _with_lengths(components)).digest()[:KEY_BYTES])


def derive_conflict_key(known: Key, other_fingerprint: bytes) -> Key:
    """Return the key under which another content waits that came under a known key.

    All those of one key begin alike, so that they can be found and counted by that.
    """
    tail = sha256(_CONFLICT_TAG + _with_lengths((known.digest, other_fingerprint))).digest()
    return Key((_conflict_head(known) + tail)[:KEY_BYTES])


def conflict_prefix(known: Key) -> str:
    """Return how the keys of other contents under this one begin, in hex digits."""
    return _conflict_head(known).hex()


def _conflict_head(known: Key) -> bytes:
    return sha256(_CONFLICT_TAG + _with_lengths((known.digest,))).digest()[:_CONFLICT_HEAD_BYTES]


@lru_cache(maxsize=1024)
def _scope(tenant: str, surface: str, template_text: str, parts: int) -> bytes:
    """Return the part of the input that all events of a surface share, tag and count included."""
    texts = [_encoded(text) for text in (tenant, surface, template_text)]
    return _KEY_TAG + _with_lengths(texts) + parts.to_bytes(8, "big")


def _with_lengths(components: Sequence[bytes]) -> bytes:
    return b"".join(len(component).to_bytes(8, "big") + component for component in components)


def _shown(text: object) -> str:
    if not isinstance(text, str):
        return f"a value of type {type(text).__name__}"
    return ascii(text[:_ECHO_LENGTH_MAX])


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError(_LONE_SURROGATE) from None
