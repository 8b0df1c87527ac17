"""The cells of the crash matrix: which there are, which cannot exist, and what is found in one.

A cell is a crash point, a store, what happens there, how often, and in whose hands. `gate_cells`,
`lane_cells` and `restore_cells` play them; `table` shows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from oncegate.crashpoints import ALL_CRASH_POINTS, LANE_CRASH_POINTS, RESTORE_CRASH_POINTS


class Ledger(Enum):
    """The store that a cell is played on."""

    SQLITE = "SQLite"
    POSTGRES = "PostgreSQL"


class Manner(Enum):
    """What happens to a worker at the point."""

    KILL = "killed"
    EXCEPTION = "exception"
    STALL = "stalled"
    UNKNOWN = "reply lost"


class Times(Enum):
    """How often it happens."""

    ONCE = "once"
    REPEATEDLY = "repeatedly"


class Phase(Enum):
    """Whose work is struck: of the worker that got the event, or of the one that recovers it."""

    NORMAL = "normal"
    RECOVERY = "in recovery"


STRIKES_MAX = 3  # workers in a row that are struck, where a cell is about doing so repeatedly

# Why some cells cannot exist: this point is the beginning of a recovery.
_IMPOSSIBLE = {("recover.after", Phase.NORMAL): "only a recovery comes here"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell."""

    point: str
    ledger: Ledger
    manner: Manner
    times: Times
    phase: Phase

    def __str__(self) -> str:
        return (
            f"{self.point}, {self.ledger.value}, {self.manner.value} {self.times.value}, {self.phase.value}"
        )

    @property
    def is_of_lanes(self) -> bool:
        """Whether it is played with the ordered-work engine, not with the gate."""
        return self.point in LANE_CRASH_POINTS

    @property
    def is_of_restores(self) -> bool:
        """Whether it is played with a ledger that goes back."""
        return self.point in RESTORE_CRASH_POINTS

    @property
    def why_impossible(self) -> str | None:
        """Why there is nothing to play, if that is so."""
        return _IMPOSSIBLE.get((self.point, self.phase))


def all_cells() -> Iterator[Cell]:
    """Every cell, also those that cannot exist."""
    for point in ALL_CRASH_POINTS:
        for ledger in Ledger:
            for manner in Manner:
                for times in Times:
                    for phase in Phase:
                        yield Cell(point, ledger, manner, times, phase)


@dataclass(slots=True)
class Finding:
    """What was found in a cell: events, workers struck, how the events ended, what workers were told."""

    tries: int = 0
    strikes: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)

    def add(self, other: Finding) -> None:
        """Takes in what another try found."""
        self.tries += other.tries
        self.strikes += other.strikes
        self.ends += other.ends
        self.told += other.told

    def as_json(self) -> dict[str, Any]:
        """For the record of a run."""
        return {
            "tries": self.tries, "strikes": self.strikes, "ends": dict(self.ends), "told": dict(self.told),
        }  # fmt: skip
