"""Flows driven without a task, for servers' inmost loops: a task an event costs as much as its flow.

A walk performs a flow's operations on the ledger itself: the group commit tells it in its loop. At the
first thing that is no operation, a handler's call or a pause, a task takes over with the walk's context.
Must be used in one event loop only. Must never decide anything, as no driver does.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Operation
from oncegate.commit.pending import Pending
from oncegate.gate.driver.requests import Flow, Invoke, Pause

T = TypeVar("T")
Ended = Callable[[Any, BaseException | None], None]
GoOn = Callable[[Flow[Any], Any], Coroutine[Any, Any, Any]]


async def record(event: Any, once: Any) -> None:
    """The handler of surfaces whose events are only recorded: there is nothing to call."""


class ReadyFlows:
    """The walks of one event loop that were told something: they go on together, in its next turn.

    Not at once: whoever tells them has the next batch to begin.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ready: list[Walk[Any]] = []

    def add(self, walk: Walk[Any]) -> None:
        """One more goes on in the next turn."""
        if not self._ready:
            self.loop.call_soon(self._go_on)
        self._ready.append(walk)

    def _go_on(self) -> None:
        ready, self._ready = self._ready[::-1], []
        while ready:
            walk = ready.pop()
            try:
                walk.context.run(walk.go_on)
            except BaseException:  # the interrupt of a person, say: the others still go on
                for other in reversed(ready):
                    self.add(other)
                raise


class Walk(Generic[T]):
    """One flow on its way, and who is told of its end."""

    __slots__ = (
        "_answer",
        "_asked",
        "_commits",
        "_ended",
        "_error",
        "_flow",
        "_task",
        "_turns",
        "_with_task",
        "context",
    )

    def __init__(
        self, flow: Flow[T], turns: ReadyFlows, commits: GroupCommit, with_task: GoOn, ended: Ended
    ) -> None:
        self._flow, self._turns, self._commits = flow, turns, commits
        self._with_task, self._ended = with_task, ended
        self._answer: Any = None
        self._asked: Operation[Any] | None = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[T] | None = None
        self.context = contextvars.copy_context()

    def begin(self, request: Any) -> None:
        """Goes on with the first thing that the flow asks for; None if it was not asked yet."""
        if request is None or self._perform_at_once(request):
            self.context.run(self.go_on)

    def done(self) -> bool:
        """It waits for one thing at a time, and until it is told."""
        return False

    def set_result(self, result: Any, /) -> None:
        """The ledger has answered."""
        self._answer = result
        self._turns.add(self)

    def set_exception(self, exception: BaseException, /) -> None:
        """The ledger has refused, or is not heard of."""
        self._error = self._error or exception
        self._turns.add(self)

    def cancel(self, msg: str | None = None) -> None:
        """Cancels the flow where it stands: its task at once, else as soon as the ledger has answered."""
        if self._task is not None:
            self._task.cancel(msg)
        else:
            self._error = CancelledError(*([] if msg is None else [msg]))

    def go_on(self) -> None:
        """Gives the flow what it waits for, until it waits again."""
        while True:
            answer, error = self._answer, self._error
            self._answer = self._error = None
            if error is not None and self._asked is not None and isinstance(error, CancelledError):
                self._asked.missed(answer)
            try:
                request = self._flow.send(answer) if error is None else self._flow.throw(error)
            except StopIteration as stop:
                self._ended(stop.value, None)
                return
            except (Exception, CancelledError) as raised:  # noqa: BLE001  who waits is told of any
                self._ended(None, raised)
                return
            if not self._perform_at_once(request):
                return

    def _perform_at_once(self, request: Any) -> bool:
        """Tells whether the flow can go on now; otherwise it is told, or has a task."""
        if type(request) is Invoke or type(request) is Pause:
            if type(request) is Invoke and request.function is record:
                return True
            self._become_task(request)
            return False
        self._asked = request
        try:
            done: Pending | None = self._commits.perform_for(request, self._turns.loop, self)
        except Exception as error:  # noqa: BLE001  the flow decides what every error means
            self._error = error
            return True
        if done is not None:
            self._answer, self._error = done.answer, done.error
        return done is not None

    def _become_task(self, request: Any) -> None:
        rest = self._with_task(self._flow, request)
        self._task = self._turns.loop.create_task(rest, context=self.context)
        self._task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._ended(None, CancelledError())
        elif (error := task.exception()) is not None:
            self._ended(None, error)
        else:
            self._ended(task.result(), None)
