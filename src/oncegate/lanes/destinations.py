"""A destination as the engine works on it: its settings, and what is in flight there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from oncegate.errors import ConfigError
from oncegate.lanes.outcomes import Outcome
from oncegate.lanes.rate_limiter import RateLimiter
from oncegate.model.backoff import Backoff
from oncegate.model.circuit import Circuit, CircuitState
from oncegate.store import Delivery, Policy

IN_FLIGHT_MAX: Final = 10_000

Deliver = Callable[[Delivery], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Destination:
    """A name, the coroutine that delivers there, and how to deal with failures.

    Without `circuit`, failures of many lanes are taken as having nothing to do with each other.
    """

    name: str
    deliver: Deliver
    backoff: Backoff = field(default_factory=Backoff)
    policy: Policy = Policy.BLOCK
    concurrency: int = 64
    per_second: float | None = None
    circuit: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= IN_FLIGHT_MAX:
            raise ConfigError(f"concurrency must be from 1 to {IN_FLIGHT_MAX}")


class Traffic:
    """What one engine has in flight at one destination, and whether more may begin.

    `before` is the destination's traffic under its former settings: what is still in flight there counts.
    """

    def __init__(self, destination: Destination, now_ticks: int, before: Traffic | None = None) -> None:
        self.destination = destination
        self.circuit = Circuit()
        self.pace = RateLimiter(destination.per_second, now_ticks)
        self.is_removed = False
        self._own_in_flight = 0
        self._before = before

    @property
    def in_flight(self) -> int:
        """How many lanes are being delivered, under whatever settings they began."""
        return self._own_in_flight + (0 if self._before is None else self._before.in_flight)

    def begin(self) -> None:
        """Counts a lane that begins."""
        self._own_in_flight += 1
        self.pace.take(1)

    def end(self) -> None:
        """Counts a lane that has ended."""
        self._own_in_flight -= 1

    def room(self, now_ticks: int) -> int:
        """How many deliveries may begin now."""
        if self._before is not None and not self._before.in_flight:
            self._before = None
        free = max(0, self.destination.concurrency - self.in_flight)
        return self.pace.room(self.circuit.room(free, self.in_flight, now_ticks), now_ticks)

    def may_follow(self, now_ticks: int) -> bool:
        """Whether a lane may go straight on to its next event."""
        closed = self.circuit.state(now_ticks) is CircuitState.CLOSED
        return closed and not self.is_removed and self.pace.room(1, now_ticks) > 0

    def opens_in_ms(self, now_ticks: int) -> list[int]:
        """When more may begin, where that is a matter of time."""
        waits = (self.circuit.opens_in_ms(now_ticks), self.pace.ready_in_ms(now_ticks))
        return [wait for wait in waits if wait is not None]
