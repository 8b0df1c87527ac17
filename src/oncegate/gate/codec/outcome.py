"""The document stored as an entry's outcome: value, resource, finished steps, or the final error.

Written by the settling flow, read by replays and by people. The store treats it as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from oncegate.errors import RecordedFailure
from oncegate.gate.codec.values import Codec
from oncegate.store import StepRecord, StepState

_DONE: Final = StepState.DONE


class StepOutcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A finished step as the outcome shows it.

    `after_ms` is when it was called, counted from the first arrival; None where it was not recorded.
    """

    name: str
    downstream: str = ""
    resource: str | None = None
    after_ms: int | None = None


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What came of a key. `after_ms` is when a call was made that no step tells of, as in a step.

    `declared` is what a failed key's first claim declared, for a person who lets it run again.
    """

    value: msgspec.Raw = msgspec.Raw()
    resource: str | None = None
    steps: tuple[StepOutcome, ...] = ()
    error: str | None = None
    error_type: str | None = None
    after_ms: int | None = None
    declared: str | None = None
    erased: bool = False  # its content was removed on request, or after its retention


def finished(steps: Iterable[StepRecord], received_at_ms: int) -> tuple[StepOutcome, ...]:
    """The finished ones of an entry's steps, as its outcome shows them."""
    return tuple(
        [
            StepOutcome(
                step.name,
                step.downstream,
                step.resource,
                None if step.started_at_ms is None else step.started_at_ms - received_at_ms,
            )
            for step in steps
            if step.state is _DONE
        ]
    )


def after(received_at_ms: int, at_ms: int | None) -> int | None:
    """A moment as it is kept: a few digits, where a date of its own would take thirteen."""
    return None if at_ms is None else at_ms - received_at_ms


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Outcome)


def encode_outcome(outcome: Outcome) -> bytes:
    """Turns an outcome into stored bytes."""
    return _ENCODER.encode(outcome)


ERASED_OUTCOME: Final = _ENCODER.encode(Outcome(erased=True))


def decode_outcome(body: bytes | None) -> Outcome:
    """Reads a stored outcome; nothing stored is an outcome without a value."""
    return Outcome() if body is None else _DECODER.decode(body)


def value_of(outcome: Outcome, codec: Codec) -> Any:
    """The recorded value; raises RecordedFailure if the outcome is a final failure."""
    if outcome.error is not None:
        raise RecordedFailure(outcome.error)
    raw = bytes(outcome.value)
    return codec.decode(raw) if raw else None
