"""Deliveries that a consumer holds: received, and neither acknowledged nor given back yet.

Deliveries of one lane stand in a line and are started one at a time, in the order they came. Lanes do not
wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from oncegate.model.trace import Context
from oncegate.sources.contract import Delivery


class HeldDelivery(Struct, eq=False):
    """One delivery with what was read of it.

    `poison` says why it is no event. `extended_ms` is when the broker's lease last began, `started_ms` when
    the handler was called; both in ticks. `is_done` is set when its event is on record, `is_dropped` when
    nothing more may be done about it, `is_let_go` when it is not extended any more, `is_claim_lost` when
    another worker has its key and its lane waits for that worker's outcome.
    """

    delivery: Delivery
    received_ms: int
    extended_ms: int
    event: Any = None
    context: Context | None = None
    lane: str | None = None
    poison: str | None = None
    started_ms: int | None = None
    is_done: bool = False
    is_dropped: bool = False
    is_let_go: bool = False
    is_claim_lost: bool = False
    attempts: int = 0


class HeldDeliveries:
    """All that one consumer holds, with its bytes, by lane."""

    def __init__(self) -> None:
        self._all: dict[HeldDelivery, int] = {}
        self._lanes: dict[str, deque[HeldDelivery]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, held: HeldDelivery) -> bool:
        return held in self._all

    def __iter__(self) -> Iterator[HeldDelivery]:
        return iter(list(self._all))

    def add(self, held: HeldDelivery) -> bool:
        """Takes a delivery in; True where it may start now, False where it waits in its lane."""
        self._all[held] = len(held.delivery.body)
        self.bytes += len(held.delivery.body)
        if held.lane is None:
            return True
        line = self._lanes.get(held.lane)
        if line is not None:
            line.append(held)
            return False
        self._lanes[held.lane] = deque()
        return True

    def remove(self, held: HeldDelivery) -> None:
        """Forgets a delivery; its lane goes on with `following`."""
        self.bytes -= self._all.pop(held, 0)

    def following(self, held: HeldDelivery) -> HeldDelivery | None:
        """The next of the lane, now that `held` has ended; None where the lane is empty, which ends it."""
        line = None if held.lane is None else self._lanes.get(held.lane)
        while line:
            found = line.popleft()
            if not found.is_dropped:
                return found
        if held.lane is not None:
            self._lanes.pop(held.lane, None)
        return None

    def line(self, held: HeldDelivery) -> list[HeldDelivery]:
        """Takes all that wait behind `held` out of its lane."""
        line = None if held.lane is None else self._lanes.get(held.lane)
        waiting = [] if line is None else list(line)
        if line is not None:
            line.clear()
        return waiting

    def not_started(self) -> list[HeldDelivery]:
        """Those whose handler does not run and whose event is not on record."""
        return [held for held in self._all if held.started_ms is None and not held.is_done]

    def matching(self, which: Callable[[Delivery], bool]) -> list[HeldDelivery]:
        """Those whose delivery matches."""
        return [held for held in self._all if which(held.delivery)]
