"""Makes a failing schedule small: leaves out deliveries and faults as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncegate.chaos.simulator.schedule import Delivery, Fault, Schedule

TRIES_MAX: Final = 400

Fails = Callable[[Schedule], bool]
Items = tuple[Delivery | Fault, ...]


def minimise(schedule: Schedule, fails: Fails) -> Schedule:
    """The smallest schedule found by leaving out ever smaller parts; nothing more can be left out of it."""
    search = _Search(schedule, fails)
    items, parts = schedule.items, 2
    while len(items) > 1 and search.tries < TRIES_MAX:
        smaller = search.first_that_fails(items, parts)
        if smaller is not None:
            items, parts = smaller, max(2, parts - 1)
        elif parts < len(items):
            parts = min(len(items), parts * 2)
        else:
            break
    return schedule.keeping(items)


class _Search:
    """Delta debugging over one schedule."""

    def __init__(self, schedule: Schedule, fails: Fails) -> None:
        self._schedule = schedule
        self._fails = fails
        self.tries = 0

    def first_that_fails(self, items: Items, parts: int) -> Items | None:
        """Leaves out one part after another; returns what is left where that still fails."""
        size = -(-len(items) // parts)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            if any(isinstance(item, Delivery) for item in rest) and self._try(rest):
                return rest
        return None

    def _try(self, items: Items) -> bool:
        self.tries += 1
        return self._fails(self._schedule.keeping(items))
