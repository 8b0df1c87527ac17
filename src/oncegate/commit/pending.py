"""Operations on their way through the group commit, and those who wait for them: threads and tasks.

Only the group commit uses these. An answer is delivered exactly once; an event loop is woken once for all
its tasks in a batch.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from sys import get_asyncgen_hooks
from threading import get_ident
from typing import Any, Final

from msgspec import Struct, field

from oncegate.commit.operations import Operation
from oncegate.errors import StoreUnknown
from oncegate.model.sql_guard import Carries


def no_answer(limit_seconds: float) -> StoreUnknown:
    """The store has not answered in time: what it did is not known."""
    return StoreUnknown(f"the store has not answered within {limit_seconds:g} s")


class Pending(Struct, eq=False):
    """An operation on its way. No task waits for this plain one: its caller reads it."""

    operation: Operation[Any]
    answer: object = None
    error: BaseException | None = None

    def result(self) -> Any:
        """The answer, or raises the error."""
        if self.error is not None:
            raise self.error
        return self.answer

    def deliver(self) -> None:
        """Tells who waits that answer or error are there, exactly once."""


def _closed_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


class ThreadPending(Pending, eq=False):
    """A thread waits for it."""

    told: threading.Lock = field(default_factory=_closed_lock)

    def deliver(self) -> None:
        """Wakes the thread."""
        self.told.release()

    def wait(self, limit_seconds: float) -> Any:
        """Blocks until the answer is there, within the limit."""
        if not self.told.acquire(timeout=limit_seconds):
            raise no_answer(limit_seconds)
        return self.result()


class TaskPending(Pending, eq=False, kw_only=True):
    """A task waits for it in an event loop."""

    gathering: LoopBatch
    waiter: asyncio.Future[Any] | None

    def tell(self, answer: object, error: BaseException | None) -> None:
        """Sets the answer or the error of the future, once."""
        waiter, self.waiter = self.waiter, None
        if waiter is None:
            return
        if waiter.done():
            self.operation.missed(None if error is not None else answer)
        elif error is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(answer)

    def deliver(self) -> None:
        """Wakes the task, unless it has gone or has its answer; must run in its loop."""
        _deliver_here([self])


class LoopBatch:
    """What the tasks of one event loop asked for in one turn of it.

    A loop may stop and go on in another thread before it has handed over what was gathered. While it runs,
    it has a hook of its own in its thread: a caller that finds the same one is in the same run of the loop.
    """

    __slots__ = ("_hook", "left", "loop", "since", "thread", "tickets", "watch")

    def __init__(self, watch: TimeoutWatcher) -> None:
        self.watch = watch
        self.thread = get_ident()
        hook = get_asyncgen_hooks().firstiter
        self._hook: object = hook if getattr(hook, "__self__", None) is watch.loop else self
        self.loop = watch.loop
        self.since = watch.loop.time()
        self.tickets: list[Pending] = []
        self.left = 0

    @property
    def is_of_running_loop(self) -> bool:
        """Whether its loop is the one that runs in this thread, where that can be told cheaply."""
        return get_asyncgen_hooks().firstiter is self._hook

    def add(self, operation: Operation[Any]) -> asyncio.Future[Any]:
        """Takes one more operation and returns what its task awaits."""
        future: asyncio.Future[Any] = self.loop.create_future()
        operation.loop = self.loop
        self.tickets.append(TaskPending(operation, gathering=self, waiter=future))
        self.left += 1
        return future

    def told(self, count: int) -> None:
        """So many more have their answer; after the last it drops them, and leaves no garbage."""
        self.left -= count
        if not self.left:
            self.watch.remove(self)
            self.tickets = []

    def fail_late(self, error: BaseException) -> None:
        """Fails every task that still waits; an answer that comes later is ignored."""
        for ticket in self.tickets:
            if isinstance(ticket, TaskPending):
                ticket.tell(None, error)


class TimeoutWatcher:
    """Sees to it that no task of one event loop waits for the store without a limit.

    And that commits made in the loop itself leave it time for others: in one turn of it `commits_max`, and
    none that begins later than `turn_ms_max` after the first.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        every_seconds: float,
        limit_seconds: float,
        commits_max: int,
        turn_ms_max: int,
    ) -> None:
        self.loop = loop
        self._commits_max = commits_max
        self._commits_left = commits_max
        self._turn_ms_max = turn_ms_max
        self._until_ms = 0
        self._every_seconds = every_seconds
        self._limit_seconds = limit_seconds
        self._waiting: dict[LoopBatch, None] = {}  # in order: whoever waits longest is told first
        self._timer: asyncio.TimerHandle | None = None

    def may_commit_here(self, now_ms: int) -> bool:
        """Takes one of this turn's commits, if there is one left, and time for it."""
        if self._commits_left == self._commits_max:
            self._until_ms = now_ms + self._turn_ms_max
            self.loop.call_soon(self._turn_ended)
        self._commits_left -= 1
        return self._commits_left >= 0 and now_ms < self._until_ms

    def _turn_ended(self) -> None:
        self._commits_left = self._commits_max

    def add(self, gathering: LoopBatch) -> None:
        """Starts to look after those who wait."""
        self._waiting[gathering] = None
        if self._timer is None:
            self._timer = self.loop.call_later(self._every_seconds, self._check)

    def remove(self, gathering: LoopBatch) -> None:
        """Stops watching batches whose tasks all have their answer."""
        self._waiting.pop(gathering, None)

    def _check(self) -> None:
        self._timer = None
        too_old = self.loop.time() - self._limit_seconds
        for gathering in [one for one in self._waiting if one.since < too_old]:
            gathering.fail_late(no_answer(self._limit_seconds))
            self.remove(gathering)
        if self._waiting:
            self._timer = self.loop.call_later(self._every_seconds, self._check)


_AT_ONCE: Final = (False,)


class Semaphore:
    """So many may be in at a time.

    A place is taken and noted by one call into C, and given back by one: what a signal raises comes before
    or after, never in between, where the place would be lost. Covered by
    `tests/commit/test_interrupts.py`.
    """

    def __init__(self, count: int) -> None:
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(count):
            self._free.put(None)
        self.give_back = self._free.put  # with None

    def take(self, held: list[None], timeout: float = 0.0) -> bool:
        """Takes a place, within the time, and notes it in `held`; False if there is none."""
        try:
            if timeout:
                held.extend(map(self._free.get, (True,), (timeout,)))
            else:
                held.extend(map(self._free.get, _AT_ONCE))
        except queue.Empty:
            return False
        return True


def fail(tickets: Sequence[Pending], error: BaseException) -> None:
    """Leaves the same error on each ticket."""
    for ticket in tickets:
        ticket.error = error


def by_kind(tickets: Sequence[Pending]) -> list[list[Pending]]:
    """Sorts tickets by their operation's kind and by what it carries, each in its order of arrival.

    Nothing that only concerns the ledger is ever run with users' statements, which may fail or wait.
    """
    grouped: dict[tuple[type[Operation[Any]], Carries], list[Pending]] = {}
    for ticket in tickets:
        kind = (type(ticket.operation), ticket.operation.carries)
        if kind in grouped:
            grouped[kind].append(ticket)
        else:
            grouped[kind] = [ticket]
    return list(grouped.values())


def deliver(tickets: Sequence[Pending]) -> None:
    """Tells threads directly and each event loop once for all its tasks."""
    by_loop: dict[asyncio.AbstractEventLoop, list[TaskPending]] = {}
    here = _running_loop()
    for ticket in tickets:
        if type(ticket) is not TaskPending:
            ticket.deliver()
        elif (loop := ticket.gathering.loop) in by_loop:
            by_loop[loop].append(ticket)
        else:
            by_loop[loop] = [ticket]
    for loop, members in by_loop.items():
        if loop is here:
            _deliver_here(members)
            continue
        try:
            loop.call_soon_threadsafe(_deliver_here, members)
        except RuntimeError:
            continue  # the loop has been closed; nobody waits any more


def _deliver_here(tickets: list[TaskPending]) -> None:
    """Wakes the tasks of the running loop; most of a batch was gathered in one turn of it."""
    gathering, count = tickets[0].gathering, 0
    for ticket in tickets:
        if ticket.gathering is not gathering:
            gathering.told(count)
            gathering, count = ticket.gathering, 0
        count += 1
        ticket.tell(ticket.answer, ticket.error)
    gathering.told(count)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def forget_closed(known: dict[asyncio.AbstractEventLoop, Any]) -> None:
    """Lets go of what belongs to loops that are over: a program may run one loop after the other."""
    for loop in list(known):
        if loop.is_closed():
            known.pop(loop, None)
