"""Operations that another transaction's lock blocks. Each runs by itself, beside the writers.

A batch waits for a lock for a moment only. What it could not do is run here, one by one: at first with a
short wait again, so that those which merely shared the batch are done at once; then those that a lock
really stops, with the ordinary wait, on threads of their own. Must never keep a ticket without a lock
behind one that waits for a lock.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from oncegate.commit.pending import Pending, deliver, fail
from oncegate.errors import StoreUnavailable

HASTY_THREADS_MAX: Final = 8
PATIENT_THREADS_MAX: Final = 16
WAITING_MAX: Final = 20_000

RunOne = Callable[[Pending, bool], bool]  # with patience or without; False if a lock is still in the way


class BlockedOperations:
    """Threads for tickets that are run one by one; started when they are needed."""

    def __init__(self, run: RunOne) -> None:
        self._run = run
        self._patient = _Crew("patient", PATIENT_THREADS_MAX, self._wait_for_lock)
        self._hasty = _Crew("apart", HASTY_THREADS_MAX, self._try)

    def add(self, tickets: list[Pending], *, patient: bool) -> None:
        """Takes operations; refuses them if too many wait. Their callers get their answers from here."""
        crew = self._patient if patient else self._hasty
        for ticket in tickets:
            if not crew.add(ticket):
                fail([ticket], StoreUnavailable("too many events wait for a lock; try again later"))
                deliver([ticket])

    def _try(self, ticket: Pending) -> None:
        if self._run(ticket, False):
            deliver([ticket])
        else:
            self.add([ticket], patient=True)

    def _wait_for_lock(self, ticket: Pending) -> None:
        self._run(ticket, True)
        deliver([ticket])

    def wait_until_idle(self, seconds: float) -> bool:
        """Waits until every operation has its answer, within the time; returns whether that is so."""
        return self._hasty.wait_until_idle(seconds) and self._patient.wait_until_idle(seconds)

    def close(self, wait_seconds: float) -> None:
        """Lets what waits finish, then ends the threads; those without patience first."""
        for crew in (self._hasty, self._patient):
            crew.close(wait_seconds)


class _Crew:
    """Threads that do one thing each at a time."""

    def __init__(self, name: str, threads_max: int, work: Callable[[Pending], None]) -> None:
        self._name, self._threads_max, self._work = name, threads_max, work
        self._guard = threading.Condition()
        self._queue: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._busy = 0  # tickets that wait or are being run

    def add(self, ticket: Pending) -> bool:
        """Takes a ticket; False if there are too many, or the threads are to end."""
        with self._guard:
            if self._closed or self._busy >= WAITING_MAX:
                return False
            self._busy += 1
            if self._busy > len(self._threads) < self._threads_max:
                self._start()
            self._queue.put(ticket)
        return True

    def _start(self) -> None:
        name = f"oncegate-{self._name}-{len(self._threads) + 1}"
        self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
        self._threads[-1].start()

    def _serve(self) -> None:
        while (ticket := self._queue.get()) is not None:
            try:
                self._work(ticket)
            finally:
                with self._guard:
                    self._busy -= 1
                    self._guard.notify_all()
            del ticket  # or a thread that waits keeps it, and the loop of those who asked

    def wait_until_idle(self, seconds: float) -> bool:
        """Waits until no ticket is left, within the time; tells whether that is so."""
        with self._guard:
            return self._guard.wait_for(lambda: self._busy == 0, seconds)

    def close(self, wait_seconds: float) -> None:
        """Lets what waits finish, then ends the threads."""
        with self._guard:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            thread.join(wait_seconds)
