"""Plays schedules against a broken gate until a checker notices, and makes what it found small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lab.broken_gates.broken_gate import BrokenGate
from lab.simulator.checkers.violation import Violation
from lab.simulator.outcome import play
from lab.simulator.report import smallest
from lab.simulator.schedule import Schedule
from lab.simulator.workload import make_schedule

SCHEDULES_MAX: Final = 6_000


@dataclass(frozen=True, slots=True)
class Catch:
    """How a broken gate was caught: after how many schedules, by which, and what was wrong."""

    seed: int
    schedules: int
    schedule: Schedule
    violations: list[Violation]


def hunt(broken: type[BrokenGate], first_seed: int = 1, schedules_max: int = SCHEDULES_MAX) -> Catch | None:
    """Finds a schedule that shows what is wrong with a broken gate; None if none does."""
    blueprint = broken()
    for number in range(schedules_max):
        schedule = make_schedule(first_seed + number, broken.surfaces)
        violations = _expected(broken, play(schedule, blueprint).violations)
        if violations:
            small = smallest(schedule, violations, blueprint)
            found = _expected(broken, play(small, blueprint).violations)
            return Catch(first_seed + number, number + 1, small, found)
    return None


def _expected(broken: type[BrokenGate], violations: list[Violation]) -> list[Violation]:
    return [violation for violation in violations if violation.invariant in broken.caught_as]
