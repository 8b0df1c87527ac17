"""What one run of traffic came to, in the same shape as a run of the gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from lab.simulator.outcome import Outcome
from lab.simulator.traffic.checkers import check_traffic
from lab.simulator.traffic.ledgers import ledger_of_a_run
from lab.simulator.traffic.plan import KINDS, POINTS, TrafficSchedule
from lab.simulator.traffic.world import TrafficWorld

PROGRESS: Final = ("acknowledged", "dead letters", "published", "read", "ruled", "rulings refused")


def play_traffic(schedule: TrafficSchedule) -> Outcome:
    """Plays a schedule and checks it."""
    return play_traffic_with_trace(schedule)[0]


def play_traffic_with_trace(schedule: TrafficSchedule) -> tuple[Outcome, list[tuple[Any, ...]]]:
    """Plays a schedule, checks it, and returns all that happened besides."""
    with ledger_of_a_run() as database:
        world = TrafficWorld(schedule, database)
        world.run()
        outcome = Outcome(check_traffic(world.evidence), world.trace, 0, 0, _counts(world))
    return outcome, world.trace


def _counts(world: TrafficWorld) -> Counter[str]:
    evidence, faults = world.evidence, world.faults
    ((acknowledged,),) = evidence.rows("SELECT count(*) FROM oncegate_ack")
    ((dead,),) = evidence.rows("SELECT count(*) FROM oncegate_dead_letter")
    answers = Counter(told.answer for told in evidence.told)
    read = len(evidence.by_cursor.events) + len(evidence.by_ack.events)
    numbers = (acknowledged, dead, len(evidence.published), read, answers["done"], answers["refused"])
    counts = Counter({f"traffic: {name}": n for name, n in zip(PROGRESS, numbers, strict=True)})
    counts.update({f"traffic fault: {kind.value}": n for kind, n in faults.fired.items()})
    counts.update({f"traffic struck at: {name}": n for name, n in faults.points.items()})
    return counts


def expected_traffic() -> Iterator[str]:
    """Everything that must have happened at least once over a set of runs."""
    yield from (f"traffic: {name}" for name in PROGRESS)
    yield from (f"traffic fault: {kind.value}" for kind in KINDS)
    yield from (f"traffic struck at: {name}" for name in POINTS)
