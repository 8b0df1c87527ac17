"""What an incident is: a recording, ways in which it went wrong, the gate's way, and what counts as right.

Called by `python -m lab incidents` and by the tests. Must never judge the gated side by anything but what
is left behind at the end, and by the same rule as the others: put a naive side in its place and it fails.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Final

from oncegate.recorder.reading import read_stream
from oncegate.recorder.recording import Recording

Numbers = dict[str, int]
WITH_GATE: Final = "with the gate"
LABEL_WIDTH: Final = 44


@dataclass(frozen=True, slots=True)
class Place:
    """Where an incident is played: a folder of its own, and databases where it needs them."""

    folder: Path
    new_server: Callable[[], Any] | None = None  # a PostgreSQL server as a context manager


@dataclass(frozen=True, slots=True)
class Ending:
    """What was left of an incident on each side, and what is wrong with that."""

    name: str
    sides: Mapping[str, Numbers]
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the gate was right and everything else was not."""
        return not self.problems

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "incident": self.name,
            "passed": self.passed,
            "sides": {title: dict(numbers) for title, numbers in self.sides.items()},
            "problems": list(self.problems),
        }

    def table(self) -> str:
        """For people."""
        titles = list(self.sides)
        width = max(map(len, titles)) + 2
        lines = [" " * LABEL_WIDTH + "".join(f"{title:>{width}}" for title in titles)]
        lines.append("-" * len(lines[0]))
        for label in self.sides[titles[-1]]:
            cells = [numbers.get(label) for numbers in self.sides.values()]
            shown = "".join(f"{'-' if cell is None else cell:>{width}}" for cell in cells)
            lines.append(f"{label:<{LABEL_WIDTH}}{shown}")
        return "\n".join(lines)


class Incident(ABC):
    """One incident. Its docstring is its story: a title, and then what happened."""

    name: ClassVar[str]
    needs_postgres: ClassVar[bool] = False

    @classmethod
    def title(cls) -> str:
        """The first line of the story."""
        return (inspect.getdoc(cls) or "").splitlines()[0].rstrip(".")

    @classmethod
    def story(cls) -> str:
        """The rest of it."""
        return "\n".join((inspect.getdoc(cls) or "").splitlines()[2:])

    @cached_property
    def recording(self) -> Recording:
        """What arrived."""
        file = resources.files("lab.incidents").joinpath("fixtures", f"{self.name}.jsonl")
        return read_stream(BytesIO(file.read_bytes()), file.name)

    @abstractmethod
    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """The ways in which it went wrong, by their titles; each plays the recording and counts."""

    @abstractmethod
    def gated(self, place: Place) -> Numbers:
        """Plays the recording through the production gate and counts the same things."""

    @abstractmethod
    def wrong(self, numbers: Numbers) -> list[str]:
        """What is wrong with a side; the same rule for all of them."""

    def play(self, place: Place) -> Ending:
        """Plays every side, each in a folder of its own, and judges them."""
        sides: dict[str, Numbers] = {}
        problems: list[str] = []
        for number, (title, side) in enumerate(self.naive().items()):
            sides[title] = side(_inside(place, f"naive-{number}"))
            if not self.wrong(sides[title]):
                problems.append(f"{title}: nothing went wrong, so this shows nothing")
        sides[WITH_GATE] = self.gated(_inside(place, "gated"))
        problems += [f"{WITH_GATE}: {fault}" for fault in self.wrong(sides[WITH_GATE])]
        return Ending(self.name, sides, problems)


def _inside(place: Place, name: str) -> Place:
    folder = place.folder / name
    folder.mkdir(parents=True)
    return Place(folder, place.new_server)


def known(numbers: Mapping[str, int | None]) -> Numbers:
    """The numbers that a side has; what only the gate can tell is left out of the others."""
    return {label: number for label, number in numbers.items() if number is not None}


def once_each(numbers: Numbers, done: str, wanted: int) -> list[str]:
    """The rule that most incidents have: done exactly once for each event that wanted it."""
    found = []
    if numbers[done] != wanted:
        found.append(f"{done} is {numbers[done]}, not {wanted}")
    found += [
        f"{label} is {numbers[label]}, not 0" for label in ("done twice", "never done") if numbers[label]
    ]
    return found


def tally_done(done: list[str], wanted: set[str]) -> Numbers:
    """How often what was wanted was done twice, and how often not at all."""
    return {
        "done twice": len(done) - len(set(done)),
        "never done": len(wanted - set(done)),
    }
