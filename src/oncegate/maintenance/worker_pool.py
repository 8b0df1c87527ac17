"""Work done several pieces at a time, of which no kind may hold up another.

The reconciler's pieces are recoveries and their kinds are surfaces. A piece that outlasts the time given to
a round goes on beside the next one and keeps its place among its kind. Must never start more of one kind
than allowed, and never drop what a piece raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from oncegate.maintenance.schedule import Stopping

CANCELLED_WITHIN_SECONDS: Final = 1.0  # below what the loop gives its own tasks

T = TypeVar("T")
R = TypeVar("R")


class WorkerPool(Generic[T, R]):
    """At most `per_kind` pieces of a kind at once; a round takes about `within`, or as long as needed."""

    def __init__(self, per_kind: int, within: timedelta | None) -> None:
        self._per_kind = per_kind
        self._within = within
        self._tasks: dict[asyncio.Task[R], T] = {}

    def under_way(self) -> list[T]:
        """The pieces that have not ended; of a loop that is gone, none."""
        return [piece for task, piece in self._tasks.items() if not task.get_loop().is_closed()]

    def ended(self) -> list[R]:
        """What pieces of earlier rounds came to since; those of a loop that is gone are forgotten."""
        self._tasks = {
            task: piece for task, piece in self._tasks.items() if not task.get_loop().is_closed()
        }
        return self._results([task for task in self._tasks if task.done()])

    async def work(
        self,
        pieces: Sequence[T],
        do: Callable[[T], Coroutine[Any, Any, R]],
        kind: Callable[[T], Hashable],
        stopping: Stopping,
    ) -> tuple[list[R], bool]:
        """Works in the order given; returns the results and whether every piece was at least begun."""
        loop = asyncio.get_running_loop()
        until = None if self._within is None else loop.time() + self._within.total_seconds()
        waiting, begun = list(pieces), []
        while True:
            if not stopping():
                begun += self._begin(waiting, do, kind)
            running = [task for task in begun if not task.done()]
            left = None if until is None else until - loop.time()
            if not running or (left is not None and left <= 0):
                break
            await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return self._results([task for task in begun if task.done()]), not waiting

    def _results(self, done: list[asyncio.Task[R]]) -> list[R]:
        """Takes ended pieces off the list, all of them, before the first error is raised."""
        for task in done:
            del self._tasks[task]
            if not task.cancelled():
                task.exception()  # looked at: asyncio need not warn of it
        return [task.result() for task in done]

    async def wait(self) -> None:
        """Waits until no piece of the running loop is under way."""
        if tasks := self._of_this_loop():
            await asyncio.wait(tasks)

    async def cancel(self) -> None:
        """Cancels every piece of the running loop and waits a moment for them to end."""
        tasks = self._of_this_loop()
        for task in tasks:
            task.cancel("the worker is stopping")
        if tasks:
            await asyncio.wait(tasks, timeout=CANCELLED_WITHIN_SECONDS)

    def _of_this_loop(self) -> list[asyncio.Task[R]]:
        loop = asyncio.get_running_loop()
        return [task for task in self._tasks if not task.done() and task.get_loop() is loop]

    def _begin(
        self, waiting: list[T], do: Callable[[T], Coroutine[Any, Any, R]], kind: Callable[[T], Hashable]
    ) -> list[asyncio.Task[R]]:
        """Begins what there is room for and takes it off the list."""
        begun: list[asyncio.Task[R]] = []
        for piece in list(waiting):
            if self._running(kind(piece), kind) < self._per_kind:
                task = asyncio.create_task(do(piece))
                self._tasks[task] = piece
                begun.append(task)
                waiting.remove(piece)
        return begun

    def _running(self, wanted: Hashable, kind: Callable[[T], Hashable]) -> int:
        return sum(1 for task, piece in self._tasks.items() if not task.done() and kind(piece) == wanted)
