"""Batches of one event loop on a local ledger: statements in the loop, the commit beside it.

The interpreter runs one thread at a time, so that statements gain nothing in a thread of their own; a
commit does, since it is the disk's work and needs no interpreter. So the loop writes a batch down itself
and goes on with its tasks while another thread commits it. Where commits are quick, a batch is half of what
waits when no other thread is at work: in one batch, all tasks would stay in step for ever, the disk idle
while they work, and they while it does.

Must never hold up the loop: a batch takes a few milliseconds at most, and whatever would wait (for another
process, for a handler's transaction, for slow statements of a user's) is left to the writer thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import suppress
from itertools import count
from typing import Final, Protocol

from oncegate.clock import Clock
from oncegate.commit.pending import Pending, deliver
from oncegate.commit.transactions import Finish

BATCH_MAX: Final = 512
BATCH_WHOLE_MAX: Final = 32  # not divided: a commit costs as much as a few dozen events
LOOP_HELD_US_MAX: Final = 3_000  # how long the statements of a batch may take
COMMIT_US_MAX: Final = 4_000  # where a commit takes longer, two of them cost more than they gain
BATCH_LEAST: Final = 4  # where not even so many fit in the time, the writer thread does it
FIRST_GUESS_US: Final = 20.0  # what one operation takes, before any was measured
JOIN_SECONDS: Final = 30.0
TAKEN_UP_SECONDS_MAX: Final = 0.002  # a thread that wakes up later will do without being waited for


class LocalLedger(Protocol):
    """What the group commit does for a batch."""

    def begin_batch(self, tickets: list[Pending]) -> Finish | None:
        """Runs the statements if that is possible at once; what is returned commits them."""

    def hand_over(self, tickets: list[Pending]) -> None:
        """Leaves the tickets to the writer thread."""


class Committer:
    """The thread that commits what loops have written down."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[int, Finish] | None] = queue.SimpleQueue()
        self._taken_up: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._numbers = count(1)
        self._thread: threading.Thread | None = None

    def put(self, work: Finish) -> None:
        """Commits at once: the thread is free, since one batch is open at a time.

        Waits until it has been taken up. A caller that went on at once would keep the interpreter to itself
        for as long as a thread may (milliseconds), and the disk would be at rest meanwhile.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="oncegate-committer", daemon=True)
            self._thread.start()
        number = next(self._numbers)
        self._queue.put((number, work))
        with suppress(queue.Empty):
            while self._taken_up.get(timeout=TAKEN_UP_SECONDS_MAX) != number:
                pass  # one that was taken up too late to be waited for

    def _work(self) -> None:
        while (taken := self._queue.get()) is not None:
            number, work = taken
            self._taken_up.put(number)
            work()
            del taken, work  # or a thread that waits keeps a whole ledger

    def close(self) -> None:
        """Ends after the commit under way."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._queue.put(None)
            self._thread.join(JOIN_SECONDS)


class LoopBatches:
    """What the tasks of one event loop want written, one batch after the other."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ledger: LocalLedger, committer: Committer, clock: Clock
    ) -> None:
        self._loop = loop
        self._ledger = ledger
        self._committer = committer
        self._clock = clock
        self._pending: list[Pending] = []
        self._is_committing = False
        self._one_us = FIRST_GUESS_US
        self._commit_us = 0.0

    @property
    def waiting(self) -> int:
        """How many tickets are in no batch yet."""
        return len(self._pending)

    def add(self, tickets: list[Pending]) -> None:
        """Takes tickets; begins with them now unless a commit is under way."""
        self._pending += tickets
        if not self._is_committing:
            self._begin(going_on=0)

    def _begin(self, going_on: int) -> None:
        batch = self._take(going_on)
        started = self._clock.elapsed_us()
        try:
            finish = self._ledger.begin_batch(batch) if batch else None
        except BaseException:  # the interrupt of a person, say: the loop is told, and nobody is forgotten
            self._hand_over(batch)
            raise
        if finish is None:
            self._hand_over(batch)
            return
        self._one_us += ((self._clock.elapsed_us() - started) / len(batch) - self._one_us) / 8
        self._is_committing = True
        self._committer.put(lambda: self._commit(finish, batch))

    def _take(self, going_on: int) -> list[Pending]:
        """The next batch. While as many others go on with their work, all that wait are one."""
        fits = min(BATCH_MAX, int(LOOP_HELD_US_MAX / max(1.0, self._one_us)))
        if fits < BATCH_LEAST:
            return []
        waiting = len(self._pending)
        whole = waiting <= max(BATCH_WHOLE_MAX, 2 * going_on) or self._commit_us > COMMIT_US_MAX
        count = min(waiting if whole else waiting // 2, fits)
        batch = self._pending[:count]
        del self._pending[:count]
        return batch

    def _hand_over(self, batch: list[Pending]) -> None:
        """Whatever keeps the loop from it, it is tried again after a while."""
        self._one_us = max(FIRST_GUESS_US, self._one_us * 0.9)
        rest, self._pending = batch + self._pending, []
        self._ledger.hand_over(rest)

    def _commit(self, finish: Finish, batch: list[Pending]) -> None:
        """In the committing thread."""
        started = self._clock.elapsed_us()
        finish()
        self._commit_us += (self._clock.elapsed_us() - started - self._commit_us) / 8
        try:
            self._loop.call_soon_threadsafe(self._committed, batch)
        except RuntimeError:
            return  # the loop has been closed; nobody waits any more

    def _committed(self, batch: list[Pending]) -> None:
        self._is_committing = False
        deliver(batch)
        if self._pending:
            self._begin(going_on=len(batch))
