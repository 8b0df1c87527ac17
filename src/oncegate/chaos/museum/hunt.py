"""Plays schedules against an exhibit until a checker notices, and makes what it found small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncegate.chaos.museum.exhibit import Exhibit
from oncegate.chaos.simulator.checkers.violation import Violation
from oncegate.chaos.simulator.outcome import play
from oncegate.chaos.simulator.report import smallest
from oncegate.chaos.simulator.schedule import Schedule
from oncegate.chaos.simulator.workload import make_schedule

SCHEDULES_MAX: Final = 6_000


@dataclass(frozen=True, slots=True)
class Catch:
    """How an exhibit was caught: after how many schedules, by which, and what was wrong."""

    seed: int
    schedules: int
    schedule: Schedule
    violations: list[Violation]


def hunt(exhibit: type[Exhibit], first_seed: int = 1, schedules_max: int = SCHEDULES_MAX) -> Catch | None:
    """Finds a schedule that shows what is wrong with an exhibit; None if none does."""
    blueprint = exhibit()
    for number in range(schedules_max):
        schedule = make_schedule(first_seed + number, exhibit.surfaces)
        violations = _expected(exhibit, play(schedule, blueprint).violations)
        if violations:
            small = smallest(schedule, violations, blueprint)
            found = _expected(exhibit, play(small, blueprint).violations)
            return Catch(first_seed + number, number + 1, small, found)
    return None


def _expected(exhibit: type[Exhibit], violations: list[Violation]) -> list[Violation]:
    return [violation for violation in violations if violation.invariant in exhibit.caught_as]
