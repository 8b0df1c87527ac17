"""Whose turn it is at a downstream, and what its circuit learns of a call.

Asked before anything is recorded or called. Must never decide whether an effect may be called again.
"""

from __future__ import annotations

from oncegate.errors import Failed, NotApplied
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.runtime.reachability import observed, reach_of
from oncegate.gate.runtime.recovery_rate_limiter import current_pace
from oncegate.gate.runtime.resources import readable
from oncegate.gate.surface import UNDECLARED, Downstream


class StillUnderWay(NotApplied):
    """An earlier request may still be under way at the downstream; ask again later.

    It counts only for the claim it was raised for: one that passes through another event's effect says
    nothing about that effect.
    """

    def __init__(self, message: str, claim: Claim) -> None:
        super().__init__(message)
        self.claim = claim


class NotNow(StillUnderWay):
    """A worker has called this downstream often enough for now."""


class Resting(NotNow):
    """The downstream is down and left alone; its first answer lets everything go on."""

    def __init__(self, message: str, claim: Claim, rest_ms: int) -> None:
        super().__init__(message, claim)
        self.retry_after_seconds = rest_ms / 1000


def take_turn(gate: GateContext, claim: Claim, downstream: Downstream) -> None:
    """Raises where the downstream rests, or recovery has had its share; `circuits.end` follows a turn."""
    if not claim.is_first_attempt and (pace := current_pace.get()) is not None:
        reason = pace.take(downstream.name)
        if reason is not None:
            raise NotNow(reason, claim)
    if not gate.circuits.known:
        return
    rest_ms = gate.circuits.begin(downstream.name, claim.entry_id)
    if rest_ms is not None:
        raise Resting(gate.circuits.why(downstream.name), claim, rest_ms)


def note_reach(gate: GateContext, claim: Claim, downstream: Downstream, error: BaseException) -> None:
    """Tells the downstream's circuit what an error says about it."""
    name = downstream.name
    if isinstance(error, Failed):
        if not claim.is_anothers(error):
            gate.circuits.answered(name)
    elif downstream is not UNDECLARED and isinstance(error, Exception):
        seen, text = observed(error), f"{type(error).__name__}: {readable(str(error))[:200]}"
        text = f"{seen} ({text})" if seen else text
        gate.circuits.failed(claim.surface.name, name, claim.entry_id, reach_of(error), text)
