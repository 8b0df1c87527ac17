"""Makes a failing schedule of traffic small: leaves out whatever it does not need to fail."""

from __future__ import annotations

from lab.simulator.checkers.violation import Violation
from lab.simulator.schedule import Fault
from lab.simulator.traffic.outcome import play_traffic
from lab.simulator.traffic.plan import Item, TrafficSchedule
from oncegate.testing.simulation.shrinking import shrink


def smallest_traffic(schedule: TrafficSchedule, violations: list[Violation]) -> TrafficSchedule:
    """The failing schedule without anything that it does not need."""
    wanted = {violation.checker for violation in violations}

    def fails(items: tuple[Item | Fault, ...]) -> bool:
        candidate = schedule.keeping(items)
        return bool(candidate.work) and any(
            violation.checker in wanted for violation in play_traffic(candidate).violations
        )

    return schedule.keeping(shrink(schedule.items, fails))
