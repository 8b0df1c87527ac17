"""What an event is about, apart from its key: one container, one patient, one invoice (F6).

A surface declares it as a template. Two events about the same target that got two resources from one step
at one downstream are a finding for a person. Must never take part in deciding whether an event runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final

from oncegate.errors import ConfigError
from oncegate.model.template import KeyTemplate

WITHIN: Final = timedelta(hours=72)
_HASH_BYTES: Final = 16
_TARGET: Final = b"oncegate target 1\0"
_KEY: Final = b"oncegate key resource 1\0"


@dataclass(frozen=True, slots=True)
class TargetRule:
    """A checked declaration: what an event is about, and how long one resource for it excludes another."""

    template: KeyTemplate
    within: timedelta = WITHIN

    def __post_init__(self) -> None:
        if self.within <= timedelta(0):
            raise ConfigError("target_within must be longer than nothing")

    @property
    def within_ms(self) -> int:
        """The time in milliseconds."""
        return self.within // timedelta(milliseconds=1)


def about_target(tenant: str, parts: Iterable[str], step: str, downstream: str) -> bytes:
    """A short name for one target at one step of a downstream."""
    return _hashed(_TARGET, [text.encode() for text in (tenant, step, downstream, *parts)])


def about_key(key: bytes, step: str) -> bytes:
    """A short name for one step of a key."""
    return _hashed(_KEY, [key, step.encode()])


def _hashed(tag: bytes, components: list[bytes]) -> bytes:
    """Lengths go before the parts, so that no two lists of parts run together into the same text."""
    pieces = [len(component).to_bytes(8, "big") + component for component in components]
    return sha256(tag + b"".join(pieces)).digest()[:_HASH_BYTES]
