"""The writer threads: they take what has gathered, as much as one batch may have, and tell who waits.

Only the group commit uses them; how a batch is run, and when its turn has come, it says itself. Must never
leave a caller without its answer, or let more wait than can be answered in time.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from oncegate.commit.pending import Pending, deliver
from oncegate.errors import StoreUnavailable

BATCH_MAX: Final = 512  # keeps one commit in the tens of milliseconds
WAITING_MAX: Final = 20_000  # beyond this callers are refused instead of queued without end

Run = Callable[[list[Pending]], list[Pending]]  # returns those that are to be told


class PlacedWriters:
    """Writers for each ledger of a store that is several, so that none waits for another one's disk."""

    def __init__(
        self, count: int, share_out: Callable[[list[Pending]], dict[object, list[Pending]]]
    ) -> None:
        self._count, self._share_out = count, share_out
        self._places: dict[object, WriterThreads] = {}
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many tickets have no answer yet."""
        return sum(writers.waiting for writers in list(self._places.values()))

    def add(self, tickets: list[Pending], run: Run) -> None:
        """Takes tickets, each for the writers of its ledger; refuses all of them or none."""
        if self._closed:
            raise StoreUnavailable("the gate is closed")
        if self.waiting + len(tickets) > WAITING_MAX:
            raise StoreUnavailable(f"{self.waiting} operations wait already; try again later")
        for place, some in self._share_out(tickets).items():
            self._places.setdefault(place, WriterThreads(self._count)).add(some, run)

    def close(self, wait_seconds: float) -> None:
        """Lets what waits finish, then ends the threads."""
        self._closed = True
        for writers in list(self._places.values()):
            writers.close(wait_seconds)


class WriterThreads:
    """So many threads, started by the first tickets."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._guard = threading.Lock()
        self._queue: queue.SimpleQueue[list[Pending] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self.waiting = 0

    def add(self, tickets: list[Pending], run: Run) -> None:
        """Takes tickets, to be run in batches; refuses them if too many wait or the threads are to end."""
        with self._guard:
            if self._closed:
                raise StoreUnavailable("the gate is closed")
            if self.waiting + len(tickets) > WAITING_MAX:
                raise StoreUnavailable(f"{self.waiting} operations wait already; try again later")
            self.waiting += len(tickets)
            if not self._threads:
                self._start(run)
            self._queue.put(tickets)

    def _start(self, run: Run) -> None:
        for number in range(self._count):
            name = f"oncegate-writer-{number + 1}"
            self._threads.append(threading.Thread(target=self._write, args=(run,), name=name, daemon=True))
            self._threads[-1].start()

    def _write(self, run: Run) -> None:
        """One thread: takes what has gathered, has it committed, tells the callers."""
        incoming: list[Pending] = []
        while incoming or (incoming := self._take()):
            batch, incoming = incoming[:BATCH_MAX], incoming[BATCH_MAX:]
            answered = run(batch)
            with self._guard:
                self.waiting -= len(batch)
            deliver(answered)
            del batch, answered  # or a writer that waits keeps it, and the loop of those who asked
            incoming += self._take_more()

    def _take(self) -> list[Pending]:
        first = self._queue.get()
        if first is None:
            return []
        return first + self._take_more()

    def _take_more(self) -> list[Pending]:
        more: list[Pending] = []
        while True:
            try:
                tickets = self._queue.get_nowait()
            except queue.Empty:
                return more
            if tickets is None:
                self._queue.put(None)
                return more
            more += tickets

    def close(self, wait_seconds: float) -> None:
        """Lets what waits finish, then ends the threads."""
        with self._guard:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            thread.join(wait_seconds)
