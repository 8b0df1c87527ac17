"""What recoveries may ask of downstreams: not too often, and not while one of them is down.

A reconciler owns one and makes it the current one around each recovery; the effect flow asks it before any
second call or question, and tells it how that went. Arrivals are not affected: nobody is refused because a
caretaker has made enough calls. Must never decide whether an effect may be called again, only when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from oncegate.model.backoff import Backoff

RATE_PER_SECOND: Final = 50.0  # second calls and questions at one downstream, from one process
FAILURES_BEFORE_REST: Final = 3  # one bad event must not keep all others waiting
REST: Final = Backoff(base=timedelta(seconds=5), cap=timedelta(minutes=2))


@dataclass(slots=True)
class _Line:
    """What is known of one downstream."""

    allowance: float
    counted_at_ms: int
    failures: int = 0
    rests_until_ms: int = 0


@dataclass(slots=True)
class Traffic:
    """The downstreams that recoveries have met, each with its pace and its rest.

    `ticks_ms` is a clock that never goes back; `jitter` spreads the ends of rests.
    """

    ticks_ms: Callable[[], int]
    jitter: Callable[[], float]
    rate_per_second: float = RATE_PER_SECOND
    _lines: dict[str, _Line] = field(default_factory=dict)
    _met: dict[str, set[str]] = field(default_factory=dict)

    def refusal(self, surface: str, downstreams: Iterable[str] = ()) -> str | None:
        """Says why an entry of a surface had better wait, going by what its like have used before."""
        for name in sorted({*self._met.get(surface, ()), *downstreams}):
            if (reason := self._reason(name)) is not None:
                return reason
        return None

    def take(self, surface: str, downstream: str) -> str | None:
        """Takes a turn at a downstream, or says why there is none."""
        self._met.setdefault(surface, set()).add(downstream)
        reason = self._reason(downstream)
        if reason is None:
            self._line(downstream).allowance -= 1
        return reason

    def went_well(self, downstream: str) -> None:
        """Notes that a downstream has answered."""
        self._line(downstream).failures = 0

    def went_wrong(self, downstream: str) -> None:
        """Notes that a downstream has not answered; after a few times in a row it is left alone."""
        line = self._line(downstream)
        line.failures += 1
        if line.failures >= FAILURES_BEFORE_REST:
            rest = REST.ceiling(line.failures - FAILURES_BEFORE_REST + 1) * (1 - self.jitter() / 2)
            line.rests_until_ms = self.ticks_ms() + rest // timedelta(milliseconds=1)

    def _reason(self, downstream: str) -> str | None:
        line = self._line(downstream)
        if line.rests_until_ms > self.ticks_ms():
            return f"{downstream} has failed {line.failures} times in a row and is left alone for now"
        if line.allowance < 1:
            return f"{downstream} has had its share of second calls for now"
        return None

    def _line(self, downstream: str) -> _Line:
        now = self.ticks_ms()
        line = self._lines.setdefault(downstream, _Line(self.rate_per_second, now))
        earned = (now - line.counted_at_ms) / 1000 * self.rate_per_second
        line.allowance = min(max(1.0, self.rate_per_second), line.allowance + earned)
        line.counted_at_ms = now
        return line


current_traffic: ContextVar[Traffic | None] = ContextVar("oncegate_traffic", default=None)
