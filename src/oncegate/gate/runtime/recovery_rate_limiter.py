"""How often recoveries may reach a downstream: second calls and questions have a rate.

A reconciler owns one and makes it the current one around each recovery; the effect flow asks it before any
second call or question. Arrivals are not affected. A downstream that is down rests for all events: that is
`gate.circuits`. Must never decide whether an effect may be called again, only when.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

RATE_PER_SECOND: Final = 50.0  # second calls and questions at one downstream, from one process


@dataclass(slots=True)
class _Allowance:
    """What is left of one downstream's share, and when that was counted."""

    calls: float
    counted_at_ms: int


@dataclass(slots=True)
class RecoveryPace:
    """The downstreams that recoveries have met, each with its share; `ticks_ms` never goes back."""

    ticks_ms: Callable[[], int]
    rate_per_second: float = RATE_PER_SECOND
    _allowances: dict[str, _Allowance] = field(default_factory=dict)

    def refusal(self, downstream: str) -> str | None:
        """Says why a downstream had better not be called again now."""
        if self._allowance(downstream).calls < 1:
            return f"{downstream} has had its share of second calls for now"
        return None

    def take(self, downstream: str) -> str | None:
        """Takes a call at a downstream, or says why there is none."""
        reason = self.refusal(downstream)
        if reason is None:
            self._allowances[downstream].calls -= 1
        return reason

    def _allowance(self, downstream: str) -> _Allowance:
        now = self.ticks_ms()
        found = self._allowances.setdefault(downstream, _Allowance(self.rate_per_second, now))
        earned = (now - found.counted_at_ms) / 1000 * self.rate_per_second
        found.calls = min(max(1.0, self.rate_per_second), found.calls + earned)
        found.counted_at_ms = now
        return found


current_pace: ContextVar[RecoveryPace | None] = ContextVar("oncegate_recovery_pace", default=None)
