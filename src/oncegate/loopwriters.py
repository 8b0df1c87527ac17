"""Batches committed inside an event loop, where the store can give way while it waits.

The group commit hands over what the tasks of a loop asked for in one turn. Each kind of operation has a
line of its own with a few writers: reservations and settlements do not wait for each other's commits.
Must never hold up the loop, and never leave anybody without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from oncegate import suspension
from oncegate.operations import Operation
from oncegate.tickets import Ticket, deliver

WRITERS_PER_LINE: Final = 2  # one batch is prepared and answered while the other commits
BATCH_MAX: Final = 512

Run = Callable[[list[Ticket]], None]


class LoopWriters:
    """The writers of one event loop."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lines: dict[type[Operation[Any]], _Line] = {}

    def add(self, tickets: Sequence[Ticket]) -> None:
        """Takes tickets; begins with them now if a writer is free."""
        touched: dict[_Line, None] = {}
        for ticket in tickets:
            line = self._line(type(ticket.operation))
            line.waiting.append(ticket)
            touched[line] = None
        for line in touched:
            line.begin()

    def _line(self, kind: type[Operation[Any]]) -> _Line:
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(self._run)
        return line

    @property
    def waiting(self) -> int:
        """How many tickets no writer has taken yet."""
        return sum(len(line.waiting) for line in self._lines.values())

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way."""
        return any(line.busy for line in self._lines.values())


class _Line:
    """Operations of one kind, in their order of arrival."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.waiting: list[Ticket] = []
        self.busy = 0

    def begin(self) -> None:
        """Starts a writer unless enough are at work."""
        if self.waiting and self.busy < WRITERS_PER_LINE:
            self.busy += 1
            suspension.start(self._write)

    def _write(self) -> None:
        try:
            while batch := self._take():
                self._run(batch)
                deliver(batch)
        finally:
            self.busy -= 1

    def _take(self) -> list[Ticket]:
        batch = self.waiting[:BATCH_MAX]
        del self.waiting[:BATCH_MAX]
        return batch
