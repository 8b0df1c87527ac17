"""What many runs came to, and whether they count: a run in which nothing happened proves nothing (I21)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from lab.simulator.outcome import Outcome
from lab.simulator.schedule import FaultKind
from lab.simulator.traffic.outcome import expected_traffic
from oncegate.crashpoints import CRASH_POINTS

COMMITS_PER_SCHEDULE_MIN: Final = 0.8
FAILURES_KEPT_MAX: Final = 20
TRAFFIC: Final = "traffic: "  # how what broke in a run of lanes, feed and rulings is told apart
ANSWERS: Final = ("run", "replay", "conflict", "hold", "failed")


@dataclass(slots=True)
class Tally:
    """Counts over many schedules; failing seeds with what was wrong."""

    schedules: int = 0
    traffic: int = 0
    effects: int = 0
    committed: int = 0
    failures: dict[int, list[str]] = field(default_factory=dict)
    failed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    processor_seconds: float = field(default=0.0, compare=False)  # of all processes, without waiting

    def add(self, seed: int, outcome: Outcome) -> None:
        """Counts one run."""
        self.schedules += 1
        self.effects += outcome.effects
        self.committed += outcome.committed
        self.counts.update(outcome.counts)
        if outcome.violations:
            self.failed += 1
            if len(self.failures) < FAILURES_KEPT_MAX:
                self.failures[seed] = [str(violation) for violation in outcome.violations]

    def add_traffic(self, seed: int, outcome: Outcome) -> None:
        """Counts one run of lanes, feed and rulings."""
        self.traffic += 1
        self.counts.update(outcome.counts)
        if outcome.violations:
            self.failed += 1
            if len(self.failures) < FAILURES_KEPT_MAX:
                self.failures[seed] = [f"{TRAFFIC}{violation}" for violation in outcome.violations]

    def merge(self, other: Tally) -> None:
        """Adds another tally."""
        self.schedules += other.schedules
        self.traffic += other.traffic
        self.effects += other.effects
        self.committed += other.committed
        self.failed += other.failed
        self.processor_seconds += other.processor_seconds
        self.counts.update(other.counts)
        for seed, texts in other.failures.items():
            if len(self.failures) < FAILURES_KEPT_MAX:
                self.failures[seed] = texts

    def gaps(self) -> Iterator[str]:
        """Why these runs do not count, if they do not."""
        if self.committed < COMMITS_PER_SCHEDULE_MIN * self.schedules:
            yield f"only {self.committed} events were committed in {self.schedules} schedules"
        for name in expected_counts():
            if not self.counts[name]:
                yield f"never happened: {name}"

    def document(self) -> dict[str, Any]:
        """The tally for programs."""
        return {
            "schedules": self.schedules,
            "traffic": self.traffic,
            "failed": self.failed,
            "effects": self.effects,
            "committed": self.committed,
            "processor_seconds": round(self.processor_seconds, 3),
            "failures": {str(seed): texts for seed, texts in self.failures.items()},
            "counts": dict(sorted(self.counts.items())),
        }


def expected_counts() -> list[str]:
    """Everything that must have happened at least once over a set of runs."""
    faults = [f"fault: {kind.value}" for kind in FaultKind]
    struck = [f"struck at: {name}" for name in CRASH_POINTS]
    return [*faults, *struck, *(f"answer: {answer}" for answer in ANSWERS), *expected_traffic()]
