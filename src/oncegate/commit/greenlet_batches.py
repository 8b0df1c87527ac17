"""Batches committed inside an event loop, where the store can give way while it waits.

The group commit hands over what the tasks of a loop asked for in one turn. Each kind of operation has a
line of its own with a few writers: reservations and settlements do not wait for each other's commits.
Batches are at most half of what is under way. In one batch, all tasks would go on in step for ever: the
server at rest while they work, and they while it does. Where processors are short, nobody is at rest, and
fewer and larger batches leave more for all: several processes with 64 callers each use a quarter less.
Must never hold up the loop, and never leave anybody without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from oncegate.clock import SystemClock
from oncegate.commit import greenlet_bridge
from oncegate.commit.operations import Operation
from oncegate.commit.pending import Pending, deliver
from oncegate.model.sql_guard import Carries

OWN_WRITERS: Final = (
    8  # transactions of one event each; the server flushes those that commit at once together
)
WRITERS_PER_LINE: Final = 2  # one batch is prepared and answered while the other commits
BATCH_MAX: Final = 512
BATCH_WHOLE_MAX: Final = 32  # not divided: a statement and a commit cost as much as a few dozen events
BATCH_WHOLE_SHORT_MAX: Final = 64  # the same where processors are short
LOOK_EVERY_MS: Final = 200
SHORT_SHARE: Final = 0.35  # of its time that a thread waits for a processor; alone it is a tenth of it
_CLOCK: Final = SystemClock()  # only to tell how long ago the last look was
_WAITED: Final = Path("/proc/thread-self/schedstat")

Run = Callable[[list[Pending]], list[Pending]]  # returns those that are to be told
_Kind = tuple[type[Operation[Any]], Carries] | None


class GreenletBatches:
    """The writers of one event loop."""

    def __init__(self, run: Run, scarcity: Scarcity | None = None) -> None:
        self._run = run
        self._lines: dict[_Kind, _Line] = {}
        self._share = Share(scarcity or Scarcity())

    def add(self, tickets: Sequence[Pending]) -> None:
        """Takes tickets; begins with them now if a writer is free."""
        self._share.added(len(tickets))
        touched: dict[_Line, None] = {}
        for ticket in tickets:
            line = self._line(ticket.operation)
            line.waiting.append(ticket)
            touched[line] = None
        for line in touched:
            line.begin()

    def _line(self, operation: Operation[Any]) -> _Line:
        """By kind and by what is carried; all whose statements have a transaction of their own are one."""
        carries = operation.carries
        kind = None if carries >= Carries.SEVERAL else (type(operation), carries)
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(self._run, self._share, is_own=kind is None)
        return line

    @property
    def waiting(self) -> int:
        """How many tickets no writer has taken yet."""
        return sum(len(line.waiting) for line in self._lines.values())

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way."""
        return any(line.busy for line in self._lines.values())


def waited_ns() -> int:
    """How long this thread has waited for a processor; 0 where the system does not tell."""
    try:
        return int(_WAITED.read_text("ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0


class Scarcity:
    """Whether processors are short: the loop's thread has work and waits for its turn on one."""

    def __init__(
        self,
        waited_ns: Callable[[], int] = waited_ns,
        ticks_ms: Callable[[], int] = _CLOCK.ticks_ms,
    ) -> None:
        self._waited_ns, self._ticks_ms = waited_ns, ticks_ms
        self._looked_at_ms, self._waited_before_ns = ticks_ms(), waited_ns()
        self.is_there = False

    def look(self) -> None:
        """Looks now and then at how long the thread has waited since the last time."""
        passed_ms = self._ticks_ms() - self._looked_at_ms
        if passed_ms < LOOK_EVERY_MS:
            return
        waited = self._waited_ns()
        self.is_there = waited - self._waited_before_ns >= SHORT_SHARE * passed_ms * 1_000_000
        self._looked_at_ms += passed_ms
        self._waited_before_ns = waited


class Share:
    """How much of what is under way, in all lines of a loop, one batch may take."""

    def __init__(self, scarcity: Scarcity) -> None:
        self._open = 0
        self._usual = 0
        self._scarcity = scarcity

    def added(self, count: int) -> None:
        """More is under way; what is usual follows the highest tide and falls slowly."""
        self._scarcity.look()
        self._open += count
        self._usual = max(self._open, self._usual - self._usual // 16)

    def answered(self, count: int) -> None:
        """A batch has been committed."""
        self._open -= count

    @property
    def batch_max(self) -> int:
        """How large a batch may be now."""
        whole = BATCH_WHOLE_SHORT_MAX if self._scarcity.is_there else BATCH_WHOLE_MAX
        return min(BATCH_MAX, max(whole, -(-self._usual // 2)))


class _Line:
    """Operations of one kind, in their order of arrival; or those that have transactions of their own."""

    def __init__(self, run: Run, share: Share, *, is_own: bool) -> None:
        self._run = run
        self._share = share
        self._is_own = is_own
        self._writers_max = OWN_WRITERS if is_own else WRITERS_PER_LINE
        self.waiting: list[Pending] = []
        self.busy = 0

    def begin(self) -> None:
        """Starts writers until all is taken, or enough are at work."""
        while self.waiting and self.busy < self._writers_max:
            self.busy += 1
            greenlet_bridge.start(self._write)

    def _write(self) -> None:
        try:
            while batch := self._take():
                answered = self._run(batch)
                self._share.answered(len(batch))
                deliver(answered)
        finally:
            self.busy -= 1

    def _take(self) -> list[Pending]:
        count = 1 if self._is_own else self._share.batch_max
        batch = self.waiting[:count]
        del self.waiting[:count]
        return batch


def forget_closed(known: dict[asyncio.AbstractEventLoop, Any]) -> None:
    """Lets go of what belongs to loops that are over: a program may run one loop after the other."""
    for loop in list(known):
        if loop.is_closed():
            known.pop(loop, None)
