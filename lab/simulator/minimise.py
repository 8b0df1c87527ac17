"""Makes a failing schedule small: leaves out deliveries and faults as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable

from lab.simulator.schedule import Delivery, Fault, Schedule
from oncegate.testing.simulation.shrinking import shrink


def minimise(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """The smallest schedule found that still fails; it always delivers something."""

    def still_fails(items: tuple[Delivery | Fault, ...]) -> bool:
        delivers = any(isinstance(item, Delivery) for item in items)
        return delivers and fails(schedule.keeping(items))

    return schedule.keeping(shrink(schedule.items, still_fails))
