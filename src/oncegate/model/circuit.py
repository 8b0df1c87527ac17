"""A destination's circuit: opens when many lanes fail and none succeeds, or when nothing can be reached.

Pure: ticks are passed in. One lane that is answered with failures never opens it, or one poisoned key would
slow the others. A destination that is not reached is down for every key: the first such attempt opens it.
A trial that fails opens it again, for longer. Endpoints and downstreams have the same kind of circuit.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

FAILING_LANES: Final = 5  # so many lanes in a row, with no success between them
REST_MS: Final = 1_000
REST_MS_MAX: Final = 30_000
SEEN_MAX: Final = 64


class CircuitState(Enum):
    """Whether a destination is tried."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class Circuit:
    """Counts failures since the last success, by lane."""

    def __init__(self) -> None:
        self._failing: set[int] = set()
        self._opened = 0
        self.error = ""
        self._until_ticks: int | None = None

    def succeed(self) -> None:
        """Closes it."""
        if self._failing or self._opened:
            self._failing.clear()
            self._opened, self._until_ticks, self.error = 0, None, ""

    @property
    def openings(self) -> int:
        """How often it opened since it was closed; 0 while it is closed."""
        return self._opened

    @property
    def failing(self) -> int:
        """How many lanes failed since the last success, as far as they are counted."""
        return len(self._failing)

    def fail(self, lane_id: int, now_ticks: int, error: str = "", *, reached: bool = True) -> None:
        """Notes a lane that failed; opens, for longer each time, when there are too many or none can."""
        self.error = error
        if len(self._failing) < SEEN_MAX:
            self._failing.add(lane_id)
        is_trial = self._until_ticks is not None
        is_down = not reached or is_trial or len(self._failing) >= FAILING_LANES
        if self.state(now_ticks) is CircuitState.OPEN or not is_down:
            return
        self._until_ticks = now_ticks + min(REST_MS_MAX, REST_MS << min(self._opened, 10))
        self._opened += 1

    def state(self, now_ticks: int) -> CircuitState:
        """Open until its rest is over, then half open until something succeeds."""
        if self._until_ticks is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now_ticks < self._until_ticks else CircuitState.HALF_OPEN

    def room(self, free: int, in_flight: int, now_ticks: int) -> int:
        """How many deliveries may begin: none while it is open, one at a time while it is half open."""
        state = self.state(now_ticks)
        if state is CircuitState.CLOSED:
            return free
        return 1 if state is CircuitState.HALF_OPEN and not in_flight else 0

    def opens_in_ms(self, now_ticks: int) -> int | None:
        """How long it is still to be left alone; None if it is not open."""
        return (
            self._until_ticks - now_ticks if self._until_ticks and now_ticks < self._until_ticks else None
        )
