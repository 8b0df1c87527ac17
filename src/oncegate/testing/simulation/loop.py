"""An event loop in virtual time: no waiting, no threads, and the same order of callbacks every time.

Time jumps to the next thing that is due. `asyncio` tasks, futures, timeouts and `asyncio.sleep` work in
it as in any loop; sockets and subprocesses do not. A plain function for a thread is called at once, in
the loop.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar

from oncegate.testing.simulation.actors import ACTOR, Actor

T = TypeVar("T")
START_WALL_MS: Final = 1_780_000_000_000
START_TICKS_MS: Final = 1_000_000
TURNS_MAX: Final = 6_000  # a hundred are usual, a thousand rare; what needs more goes round in circles

# Typed loosely: of the many methods of a loop only those are here that a simulation can have.
_Loop: Any = asyncio.AbstractEventLoop


class WentInCircles(Exception):
    """Something is tried for ever."""


class LoopTurn:
    """A callback that waits for its turn; cancelled like asyncio's own handles."""

    __slots__ = ("_cancelled", "actor", "arguments", "callback", "context", "when_at")

    def __init__(self, when_at: float, callback: Any, arguments: tuple[Any, ...], context: Context) -> None:
        self.when_at = when_at
        self.callback = callback
        self.arguments = arguments
        self.context = context
        self.actor: Actor | None = context.get(ACTOR)
        self._cancelled = False

    def cancel(self) -> None:
        """Gives the turn up."""
        self._cancelled = True

    def cancelled(self) -> bool:
        """Whether the turn was given up."""
        return self._cancelled

    def when(self) -> float:
        """When it is due."""
        return self.when_at


class VirtualLoop(_Loop):  # type: ignore[misc]
    """Runs callbacks in order of their time, then of their making."""

    def __init__(self, turns_max: int = TURNS_MAX) -> None:
        self._turns_max = turns_max
        self._now = 0.0
        self._order = 0
        self._ready: deque[LoopTurn] = deque()
        self._timers: list[tuple[float, int, LoopTurn]] = []  # compared without calling any of our own code
        self._nobody = Context()
        self._tasks: list[asyncio.Task[Any]] = []
        self.turns = 0

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """Runs a callback at the present moment, after those that are due already."""
        turn = LoopTurn(self._now, callback, args, copy_context() if context is None else context)
        self._ready.append(turn)
        return turn

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """The same: there are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """Runs a callback after some seconds of virtual time."""
        # As `call_at`, which is not called: this is called for most turns.
        self._order = order = self._order + 1
        at = self._now + delay if delay > 0 else self._now
        turn = LoopTurn(at, callback, args, copy_context() if context is None else context)
        heapq.heappush(self._timers, (at, order, turn))
        return turn

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """Runs a callback at a moment."""
        self._order = order = self._order + 1
        at = max(self._now, when)
        turn = LoopTurn(at, callback, args, copy_context() if context is None else context)
        heapq.heappush(self._timers, (at, order, turn))
        return turn

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """A task of this loop."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def bury(self) -> None:
        """Ends every task that has not ended; call it when nothing that they do matters any more.

        Until then a task of a dead actor is kept: collecting it would run its `finally` blocks.
        """
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            work: Any = task.get_coro()
            try:
                work.close()
            except RuntimeError:  # it awaits in a `finally` block, and nothing answers any more
                continue

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Calls a plain function at once."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  whoever awaits it is told
            done.set_exception(error)
        return done

    def run_until(self, is_over: Callable[[], bool], until: float) -> bool:
        """Runs until `is_over` says so or the moment has come; tells whether it is over."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            return self._run_turns(is_over, until)
        finally:
            asyncio._set_running_loop(before)

    def _run_turns(self, is_over: Callable[[], bool], until: float) -> bool:
        # All in one function: a call or two more for each turn would be a tenth of a simulation.
        timers, ready, take_timer = self._timers, self._ready, heapq.heappop
        while not is_over():
            if timers and timers[0][0] <= self._now:
                turn = take_timer(timers)[2]
            elif ready:
                turn = ready.popleft()
            elif timers and timers[0][0] <= until:
                self._now = timers[0][0]
                turn = take_timer(timers)[2]
            else:
                self._now = max(self._now, until)
                return is_over()
            actor = turn.actor
            if turn._cancelled or (actor is not None and actor.dead):
                continue
            if actor is not None and actor.stalled_until > self._now:
                actor.put_off.append(turn)
                continue
            self.turns += 1
            if self.turns > self._turns_max:
                raise WentInCircles(f"the simulation did not end within {self._turns_max} turns")
            turn.context.run(turn.callback, *turn.arguments)
        return True

    def stall(self, actor: Actor, seconds: float) -> None:
        """Puts off everything an actor would do, for a while."""
        actor.stalled_until = self._now + seconds
        self.call_later(seconds, self._resume, actor, context=self._nobody)

    def end_stall(self, actor: Actor) -> None:
        """Lets a stalled actor go on at once."""
        actor.stalled_until = self._now
        self._resume(actor)

    def _resume(self, actor: Actor) -> None:
        if actor.stalled_until <= self._now:
            self._ready.extend(actor.put_off)
            actor.put_off = []

    def get_debug(self) -> bool:
        """Never: asyncio's own checks read the real clock."""
        return False

    def is_running(self) -> bool:
        """Whether callbacks are being run."""
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        """Never: there is nothing to close."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Says nothing: of the dead, tasks are destroyed and errors never retrieved."""


class VirtualClock:
    """A worker's clocks in virtual time; its wall clock may be stepped."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.wall_offset_ms = 0

    def wall_ms(self) -> int:
        """What the worker believes the time of day to be."""
        return START_WALL_MS + int(self._loop._now * 1000) + self.wall_offset_ms

    def ticks_ms(self) -> int:
        """Virtual time."""
        return START_TICKS_MS + int(self._loop._now * 1000)

    def elapsed_us(self) -> int:
        """Virtual time, finely."""
        return int(self._loop._now * 1_000_000)

    def boot_id(self) -> str:
        """One boot: machines do not restart in a simulation, workers do."""
        return "virtual"

    def pause(self, seconds: float) -> None:
        """Nothing: a plain function cannot let virtual time pass."""

    async def pause_async(self, seconds: float) -> None:
        """Lets virtual time pass."""
        await asyncio.sleep(seconds)
