"""What one run came to, as a value that crosses process boundaries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from oncegate.chaos.simulator.checkers import check
from oncegate.chaos.simulator.checkers.violation import Violation
from oncegate.chaos.simulator.schedule import Schedule
from oncegate.chaos.simulator.worker import Blueprint
from oncegate.chaos.simulator.world import World
from oncegate.model.states import State


@dataclass(slots=True)
class Outcome:
    """One run: what was wrong, and what happened at all."""

    violations: list[Violation]
    digest: str
    effects: int
    committed: int
    counts: Counter[str] = field(default_factory=Counter)


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
    outcome = Outcome(check(evidence), world.digest(), len(evidence.effects), committed, _counts(world))
    return outcome, world.trace


def _counts(world: World) -> Counter[str]:
    faults = world.faults
    counts: Counter[str] = Counter(
        {f"fault: {kind.value}": number for kind, number in faults.fired.items()}
    )
    counts.update({f"struck at: {name}": number for name, number in faults.points.items()})
    counts.update(_verdicts(world))
    return counts


def _verdicts(world: World) -> Counter[str]:
    acks = world.evidence.acks
    return Counter(
        f"answer: {'failed' if ack.admission is None else ack.admission.verdict.value}" for ack in acks
    )
