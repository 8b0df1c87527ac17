"""What one run came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from lab.simulator.checkers import check
from lab.simulator.checkers.violation import Violation
from lab.simulator.schedule import Schedule
from lab.simulator.worker import Blueprint
from lab.simulator.world import World
from oncegate.model.states import State


@dataclass(slots=True)
class Outcome:
    """One run: what was wrong, and what happened at all."""

    violations: list[Violation]
    trace: list[tuple[Any, ...]] = field(repr=False)
    effects: int
    committed: int
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def digest(self) -> str:
        """The whole trace in a few letters: equal for equal runs."""
        return sha256(repr(self.trace).encode()).hexdigest()[:16]


def play(schedule: Schedule, blueprint: Blueprint | None = None) -> Outcome:
    """Plays a schedule and checks it."""
    return play_with_trace(schedule, blueprint)[0]


def play_with_trace(
    schedule: Schedule, blueprint: Blueprint | None = None
) -> tuple[Outcome, list[tuple[Any, ...]]]:
    """Plays a schedule, checks it, and returns all that happened besides."""
    world = World(schedule, blueprint or Blueprint())
    evidence = world.run()
    committed = sum(row.state is State.COMMITTED for row in evidence.tables.rows.values())
    outcome = Outcome(check(evidence), world.trace, len(evidence.effects), committed, _counts(world))
    return outcome, world.trace


def _counts(world: World) -> Counter[str]:
    faults = world.faults
    counts: Counter[str] = Counter()
    for kind, number in faults.fired.items():
        counts[f"fault: {kind.value}"] = number
    for name, number in faults.points.items():
        counts[f"struck at: {name}"] = number
    for ack in world.evidence.acks:
        counts[f"answer: {'failed' if ack.admission is None else ack.admission.verdict.value}"] += 1
    return counts
