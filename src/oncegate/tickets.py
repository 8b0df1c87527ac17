"""Operations on their way through the group commit, and those who wait for them: threads and tasks.

Only the group commit uses these. An answer is delivered exactly once; an event loop is told once for all
its tasks in a batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from oncegate.errors import StoreUnknown
from oncegate.operations import Operation


def no_answer(limit_seconds: float) -> StoreUnknown:
    """The store has not answered in time: what it did is not known."""
    return StoreUnknown(f"the store has not answered within {limit_seconds:g} s")


class Completion(Protocol):
    """Where an operation's answer goes."""

    def deliver(self, answer: object, error: BaseException | None) -> None:
        """Hands over the answer or the error, exactly once."""


class Nobody:
    """Nobody waits elsewhere: the caller reads the ticket itself."""

    def deliver(self, answer: object, error: BaseException | None) -> None:
        """Does nothing."""


class Ticket:
    """An operation on its way, and who waits for it."""

    __slots__ = ("answer", "completion", "error", "operation")

    def __init__(self, operation: Operation[Any], completion: Completion) -> None:
        self.operation = operation
        self.completion = completion
        self.answer: object = None
        self.error: BaseException | None = None

    def result(self) -> Any:
        """The answer, or raises the error."""
        if self.error is not None:
            raise self.error
        return self.answer


class ThreadCompletion:
    """A thread that waits."""

    __slots__ = ("_answer", "_error", "_told")

    def __init__(self) -> None:
        self._told = threading.Lock()
        self._told.acquire()
        self._answer: object = None
        self._error: BaseException | None = None

    def deliver(self, answer: object, error: BaseException | None) -> None:
        """Wakes the thread."""
        self._answer, self._error = answer, error
        self._told.release()

    def wait(self, limit_seconds: float) -> Any:
        """Blocks until the answer is there, within the limit."""
        if not self._told.acquire(timeout=limit_seconds):
            raise no_answer(limit_seconds)
        if self._error is not None:
            raise self._error
        return self._answer


class TaskCompletion:
    """A task that waits in an event loop."""

    __slots__ = ("future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()

    def deliver(self, answer: object, error: BaseException | None) -> None:
        """Wakes the task; must run in its loop."""
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(answer)


class Watch:
    """Sees to it that no task of one event loop waits for the store without a limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, every_seconds: float, limit_seconds: float) -> None:
        self._loop = loop
        self._every_seconds = every_seconds
        self._limit_seconds = limit_seconds
        self._waiting: dict[TaskCompletion, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, completion: TaskCompletion) -> None:
        """Starts to look after a waiting task."""
        self._waiting[completion] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._every_seconds, self._check)

    def remove(self, completion: TaskCompletion) -> None:
        """Stops looking after it."""
        del self._waiting[completion]

    def _check(self) -> None:
        self._timer = None
        too_old = self._loop.time() - self._limit_seconds
        for completion, since in list(self._waiting.items()):
            if since < too_old:
                completion.deliver(None, no_answer(self._limit_seconds))
        if self._waiting:
            self._timer = self._loop.call_later(self._every_seconds, self._check)


def fail(tickets: Sequence[Ticket], error: BaseException) -> None:
    """Leaves the same error on each ticket."""
    for ticket in tickets:
        ticket.error = error


def by_kind(tickets: Sequence[Ticket]) -> list[list[Ticket]]:
    """Sorts tickets by the kind of their operation, each kind in its order of arrival."""
    grouped: dict[type[Operation[Any]], list[Ticket]] = {}
    for ticket in tickets:
        grouped.setdefault(type(ticket.operation), []).append(ticket)
    return list(grouped.values())


def deliver(tickets: Sequence[Ticket]) -> None:
    """Tells threads directly and each event loop once for all its tasks."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    here = _running_loop()
    for ticket in tickets:
        completion = ticket.completion
        if isinstance(completion, TaskCompletion) and completion.loop is not here:
            by_loop.setdefault(completion.loop, []).append(ticket)
        else:
            completion.deliver(ticket.answer, ticket.error)
    for loop, members in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver_here, members)
        except RuntimeError:
            continue  # the loop has been closed; nobody waits any more


def _deliver_here(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.completion.deliver(ticket.answer, ticket.error)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
