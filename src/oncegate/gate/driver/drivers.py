"""The two drivers: they run the same flows for a thread and for a task.

Nothing is decided here. A driver performs what a flow asks for and hands back the answer or the error.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import isawaitable, iscoroutine
from types import CoroutineType
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit import greenlet_bridge
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Operation
from oncegate.commit.pending import Pending
from oncegate.errors import UsageError
from oncegate.gate.codec.introspection import LAZY, is_async, name_of, refuse_lazy
from oncegate.gate.driver.requests import Flow, Invoke, NotCalled, Pause, ThreadCall, Where

T = TypeVar("T")

_log: Final = logging.getLogger("oncegate.gate")

_CALL: Final = Where.CALL
_HERE: Final = Where.HERE
_STATEMENT: Final = Where.STATEMENT
THREADS_MAX: Final = 64  # plain functions called from tasks; more wait their turn


class WaitingFlow(Struct, Generic[T], eq=False):
    """A flow that has to wait for something: it is to be finished, or closed."""

    driver: Driver
    flow: Flow[T]
    request: Any

    async def finish(self) -> T:
        """Goes on to its end in the calling task."""
        return await self.driver._go_on(self.flow, self.request)

    def close(self) -> None:
        """Leaves it: nothing has been asked of the ledger yet."""
        self.flow.close()


class Driver:
    """Runs flows on one ledger."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits = commits
        self._ask = commits.submit_nowait
        self._clock = clock
        self._gives_way = commits.store.capabilities.gives_way
        self._threads: dict[Where, ThreadPoolExecutor] = {}
        self._left: list[ThreadCall] = []
        self._pid = os.getpid()
        self.renew_thread: Callable[[], None] | None = None  # before and after a user's call in a thread

    def run(self, flow: Flow[T]) -> T:
        """Drives a flow to its end in the calling thread."""
        try:
            return self._drive(flow, None)
        except BaseException as raised:
            if _has_ended(flow):
                raise
            return self._drive(flow, raised)  # an interrupt on the way from or to the flow: it must know

    def _drive(self, flow: Flow[T], error: BaseException | None) -> T:
        answer: Any = None
        while True:
            try:
                request = flow.send(answer) if error is None else flow.throw(error)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            finally:
                error = None  # or the error and the frame that names it keep each other, and all they hold
            try:
                if type(request) is Invoke:
                    answer = _call_plain(request)
                elif type(request) is Pause:
                    answer = self._clock.pause(request.seconds)  # type: ignore[func-returns-value]
                else:
                    answer = self._commits.submit(request)
            except BaseException as raised:  # noqa: BLE001  the flow decides what every error means
                answer, error = None, raised

    def begin_async(self, flow: Flow[T]) -> T | WaitingFlow[T]:
        """Drives a flow to the first thing that it has to wait for; its end, if there is none.

        Must be called in the event loop that it goes on in.
        """
        try:
            request = flow.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        return WaitingFlow(self, flow, request)

    async def _go_on(self, flow: Flow[T], request: Any = None) -> T:
        """From a request, or from the beginning; every event passes here twice, hence in one piece."""
        answer: Any = None
        asked: Pending | asyncio.Future[Any] | None = None
        error: BaseException | None = None
        while True:
            try:
                if request is None:
                    pass
                elif type(request) is Invoke:
                    answer = self._call(request)
                    if type(answer) is CoroutineType or isawaitable(answer):
                        answer = await answer
                    if type(answer) in LAZY:
                        refuse_lazy(request.function, answer)
                elif type(request) is Pause:
                    await self._clock.pause_async(request.seconds)
                else:
                    asked = self._ask(request)
                    answer = asked.result() if isinstance(asked, Pending) else await asked
            except GeneratorExit:
                flow.close()  # the task is being destroyed: nothing more can be awaited
                raise
            except BaseException as raised:  # noqa: BLE001  the flow decides what every error means
                error = raised
                _keep_answer(raised, request, asked)
            try:
                request = flow.send(answer) if error is None else flow.throw(error)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            finally:
                answer = error = None  # as above

    run_async = _go_on  # drives a flow to its end in the calling task

    def _call(self, request: Invoke) -> Any:
        """What a function returned, or what has to be awaited for it."""
        if request.where is _HERE or (request.where is _CALL and _is_async(request)):
            return request.function(*request.arguments, **request.keywords)
        if request.where is _STATEMENT and self._gives_way:  # ours, and never async
            return greenlet_bridge.run(request.function, *request.arguments, **request.keywords)
        return self._call_in_thread(request)

    def run_statement(self, function: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        """Runs one statement of ours in a handler's own transaction, for a task: a flow of one request."""
        if self._gives_way:
            return greenlet_bridge.run(function, *arguments)
        return self._call_in_thread(Invoke(function, arguments, where=_STATEMENT))

    async def _call_in_thread(self, request: Invoke) -> Any:
        if self._pid != os.getpid():  # a forked child has none of its parent's threads
            self._pid, self._threads = os.getpid(), {}
        threads = self._threads.get(request.where)
        if threads is None:
            threads = ThreadPoolExecutor(THREADS_MAX, f"oncegate-{request.where.value}")
            self._threads[request.where] = threads
        context = contextvars.copy_context()
        renew = self.renew_thread if request.where is _CALL else None
        function = request.function if renew is None else partial(_renewed, renew, request.function)
        call = ThreadCall(lambda: context.run(function, *request.arguments, **request.keywords))
        try:
            answer = await asyncio.get_running_loop().run_in_executor(threads, call)
        except asyncio.CancelledError:
            if not call.take_start():  # it has begun, and goes on
                request.left = call
                self._left = [*self.left, call]
            raise
        return await answer if isawaitable(answer) else answer

    @property
    def left(self) -> list[ThreadCall]:
        """Calls in threads that go on although their tasks were cancelled."""
        return [call for call in self._left if not call.has_ended]

    def close(self) -> None:
        """Lets running calls finish and ends the threads."""
        for threads in self._threads.values():
            threads.shutdown(wait=True)
        self._threads = {}


def _renewed(
    renew: Callable[[], None], function: Callable[..., T], /, *arguments: Any, **keywords: Any
) -> T:
    renew()
    try:
        return function(*arguments, **keywords)
    finally:
        try:
            renew()
        except Exception as error:  # noqa: BLE001  the call has its outcome, whatever fails after it
            _log.error("renewing a thread's connections failed after a call: %r", error)


class WrappingDriver(Driver):
    """A driver that lets an observer look at every flow it runs, for spans."""

    def __init__(self, driver: Driver, wrap: Callable[[Flow[Any]], Flow[Any]]) -> None:
        super().__init__(driver._commits, driver._clock)
        self.renew_thread = driver.renew_thread
        self._wrap = wrap

    def run(self, flow: Flow[T]) -> T:
        """Drives a wrapped flow in the calling thread."""
        wrapped: Flow[T] = self._wrap(flow)
        return super().run(wrapped)

    async def run_async(self, flow: Flow[T], request: Any = None) -> T:
        """Drives a wrapped flow in the calling task."""
        wrapped: Flow[T] = self._wrap(flow)
        return await self._go_on(wrapped, request)

    def run_statement(self, function: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        """The same as a flow, which can be looked at."""
        return self.run_async(_asked(Invoke(function, arguments, where=_STATEMENT)))

    def begin_async(self, flow: Flow[T]) -> T | WaitingFlow[T]:
        """Begins nothing yet: what a span sets must be set in the context that the flow goes on in."""
        wrapped: Flow[T] = self._wrap(flow)
        return WaitingFlow(self, wrapped, None)


def _keep_answer(raised: BaseException, request: Any, asked: Pending | asyncio.Future[Any] | None) -> None:
    """Keeps an answer that came in the same turn as the cancellation: it was sent, but not received."""
    if not isinstance(raised, asyncio.CancelledError) or not isinstance(request, Operation):
        return
    if isinstance(asked, asyncio.Future) and asked.done() and not asked.cancelled():
        request.missed(None if asked.exception() is not None else asked.result())


def _asked(request: Any) -> Flow[Any]:
    return (yield request)


def _has_ended(flow: Flow[Any]) -> bool:
    """Whether a flow has returned or raised, and does not wait to be gone on with."""
    return getattr(flow, "gi_frame", None) is None


def _is_async(request: Invoke) -> bool:
    return is_async(request.function) if request.is_async is None else request.is_async


def _call_plain(request: Invoke) -> Any:
    if request.where is not _HERE and _is_async(request):
        raise NotCalled(
            f"{name_of(request.function)} is async and was reached without an event loop; "
            "use an async handler and await gate.admit(…)"
        )
    answer = request.function(*request.arguments, **request.keywords)
    if iscoroutine(answer):
        answer.close()
        # Not NotCalled: the function has run, and nobody knows what it did before it returned.
        raise UsageError(f"{name_of(request.function)} returned a coroutine to a handler that is not async")
    if type(answer) in LAZY:
        refuse_lazy(request.function, answer)
    return answer
