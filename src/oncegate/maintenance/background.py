"""The loop that all caretakers run in, inside the user's process: a thread or a task each.

Each duty has its own, so that one that hangs or fails delays no other. Stopping is asked for first, waited
for as long as the grace lasts, and then done without those that do not answer: what they had begun lapses
and is looked into like any crash.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from oncegate.clock import Clock
from oncegate.errors import UsageError
from oncegate.maintenance.schedule import AsyncTurn, Duty, Notice, Schedule, Stopping

GRACE: Final = timedelta(seconds=10)  # well below the 30 s after which orchestrators kill
CANCELLED_WITHIN_SECONDS: Final = 2.0
NOTICE_WITHIN_SECONDS: Final = 0.2  # that somebody has asked to stop

log = logging.getLogger("oncegate.maintenance")


class Caretakers:
    """Caretakers at work for as long as a `with` or an `async with` block lasts."""

    def __init__(
        self,
        duties: Sequence[Duty],
        *,
        clock: Clock,
        jitter: Callable[[], float] | None = None,
        notice: Notice | None = None,
        grace: timedelta = GRACE,
    ) -> None:
        self.duties = tuple(duties)
        self._clock = clock
        self._jitter = jitter or random.SystemRandom().random
        self._notice = notice
        self._grace = grace
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def are_running(self) -> bool:
        """Whether any caretaker has not ended."""
        return any(thread.is_alive() for thread in self._threads) or any(
            not task.done() for task in self._tasks
        )

    def __enter__(self) -> Self:
        self._begin()
        for duty in self.duties:
            self._start_thread(duty)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._join()

    async def __aenter__(self) -> Self:
        self._begin()
        for duty in self.duties:
            if duty.run_once_async is None:
                self._start_thread(duty)
            else:
                task = asyncio.create_task(self._keep_async(duty, duty.run_once_async))
                self._tasks.append(task)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        await asyncio.gather(self._end_tasks(), asyncio.to_thread(self._join))

    def _begin(self) -> None:
        if self.are_running:
            raise UsageError("these caretakers are at work already; make others with gate.caretakers()")
        self._stop.clear()
        self._threads, self._tasks = [], []

    def _turns(self, duty: Duty) -> Schedule:
        return Schedule(duty, clock=self._clock, jitter=self._jitter, notice=self._notice)

    def _start_thread(self, duty: Duty) -> None:
        thread = threading.Thread(
            target=self._keep, args=(duty,), name=f"oncegate-{duty.name}", daemon=True
        )
        thread.start()
        self._threads.append(thread)

    def _keep(self, duty: Duty) -> None:
        try:
            if duty.run_once is not None:
                self._keep_blocking(duty, duty.run_once)
            elif duty.run_once_apart is not None:
                asyncio.run(self._keep_async(duty, duty.run_once_apart))
        except BaseException:  # a handler that ends its process ends only this thread, and says so
            log.critical("%s has ended before its time", duty.name, exc_info=True)
            raise

    def _keep_blocking(self, duty: Duty, turn: Callable[[Stopping], object]) -> None:
        turns = self._turns(duty)
        while not self._stop.wait(turns.seconds_left()):
            turns.take(turn, self._stop.is_set)

    async def _keep_async(self, duty: Duty, turn: AsyncTurn) -> None:
        turns = self._turns(duty)
        try:
            while not await self._is_stopped_within(turns.seconds_left()):
                await turns.take_async(turn, self._stop.is_set)
            if duty.under_way is not None:
                await duty.under_way.wait()
        except asyncio.CancelledError:
            if duty.under_way is not None:
                await duty.under_way.cancel()
            raise

    async def _is_stopped_within(self, seconds: float) -> bool:
        """Waits in short sleeps: whoever asks to stop may be in another thread."""
        until_ms = self._clock.ticks_ms() + int(seconds * 1000)
        while not self._stop.is_set() and (left := until_ms - self._clock.ticks_ms()) > 0:
            await self._clock.pause_async(min(left / 1000, NOTICE_WITHIN_SECONDS))
        return self._stop.is_set()

    async def _end_tasks(self) -> None:
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=self._grace.total_seconds())
        for task in late:
            task.cancel("the caretakers are stopping")
        if late:
            _, left = await asyncio.wait(late, timeout=CANCELLED_WITHIN_SECONDS)
            self._tell_left(len(left))

    def _join(self) -> None:
        until_ms = self._clock.ticks_ms() + self._grace // timedelta(milliseconds=1)
        for thread in self._threads:
            thread.join(max(0.0, (until_ms - self._clock.ticks_ms()) / 1000))
        self._tell_left(sum(thread.is_alive() for thread in self._threads))

    def _tell_left(self, number: int) -> None:
        if number:
            log.warning("%d caretakers did not stop within %s and are left behind", number, self._grace)
