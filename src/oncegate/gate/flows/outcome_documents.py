"""The outcome documents of claims that end, and errors as reasons for people."""

from __future__ import annotations

from typing import Final

import msgspec

from oncegate.errors import Failed, OutcomeUnknown
from oncegate.gate.codec.outcome import Outcome, StepOutcome, after, encode_outcome, finished
from oncegate.gate.flows.downstream_turns import StillUnderWay
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.resources import readable

REASON_LENGTH_MAX: Final = 300


def outcome_of(claim: Claim, value: bytes) -> bytes:
    """The outcome document of a claim that has succeeded."""
    steps, untold_ms = _calls(claim)
    return encode_outcome(Outcome(msgspec.Raw(value), claim.resource, steps, after_ms=untold_ms))


def _calls(claim: Claim) -> tuple[tuple[StepOutcome, ...], int | None]:
    """The steps that were finished, and when a call was made that none of them tells of."""
    received_at_ms = claim.reserved.received_at_ms
    steps = tuple(claim.steps.values())  # a copy: a thread that outlives its handler may add to them
    return finished(steps, received_at_ms), after(received_at_ms, claim.untold_at_ms)


def failure_outcome(claim: Claim, error: BaseException) -> bytes:
    """The outcome of a claim that failed finally: what it did before stays visible in it (D4)."""
    steps, untold_ms = _calls(claim)
    outcome = Outcome(
        resource=claim.resource,
        steps=steps,
        error=describe(error),
        error_type=type(error).__name__,
        after_ms=untold_ms,
        declared=claim.first_declared,
    )
    return encode_outcome(outcome)


def describe(error: BaseException) -> str:
    """A short reason for people, from an error."""
    text = " ".join(readable(str(error)).split()) or "no message"
    kind = "" if isinstance(error, (Failed, OutcomeUnknown, StillUnderWay)) else f"{type(error).__name__}: "
    return f"{kind}{text}"[:REASON_LENGTH_MAX]
