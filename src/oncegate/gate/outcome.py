"""The document stored as an entry's outcome: value, resource, finished steps, or the final error.

Written by the settling flow, read by replays and by people. The store treats it as bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from oncegate.errors import RecordedFailure
from oncegate.gate.codec import Codec


class StepOutcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A finished step as the outcome shows it."""

    name: str
    downstream: str = ""
    resource: str | None = None


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What came of a key."""

    value: msgspec.Raw = msgspec.Raw()
    resource: str | None = None
    steps: tuple[StepOutcome, ...] = ()
    error: str | None = None
    error_type: str | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Outcome)


def encode_outcome(outcome: Outcome) -> bytes:
    """Turns an outcome into stored bytes."""
    return _ENCODER.encode(outcome)


def decode_outcome(body: bytes | None) -> Outcome:
    """Reads a stored outcome; nothing stored is an outcome without a value."""
    return Outcome() if body is None else _DECODER.decode(body)


def value_of(outcome: Outcome, codec: Codec) -> Any:
    """The recorded value; raises RecordedFailure if the outcome is a final failure."""
    if outcome.error is not None:
        raise RecordedFailure(outcome.error)
    raw = bytes(outcome.value)
    return codec.decode(raw) if raw else None
