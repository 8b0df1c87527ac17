"""The worker: all background jobs of a gate in one process, each in its own thread or task.

A job that hangs or fails delays no other. Stopping has three steps: ask every job to stop, wait for the
grace, then leave behind what has not ended. The lease of an abandoned event expires, and recovery handles
it like an event of a crashed process.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

from oncegate.clock import Clock
from oncegate.errors import UsageError
from oncegate.maintenance.schedule import AsyncRun, JobKind, Notice, PeriodicJob, Schedule, Stopping, never

GRACE: Final = timedelta(seconds=10)  # well below the 30 s after which orchestrators kill
CANCELLED_WITHIN_SECONDS: Final = 2.0
NOTICE_WITHIN_SECONDS: Final = 0.2  # until a job in a loop notices the request to stop

log = logging.getLogger("oncegate.maintenance")


@dataclass(frozen=True, slots=True)
class ContinuousJob:
    """A background job that runs all the time: `open` makes what starts it and drains it.

    It gets the seconds that draining may take. `run_once` does all that is due and returns a report.
    `needs_loop` says why a plain `with` cannot run it; None where it can.
    """

    kind: JobKind
    open: Callable[[float], AbstractAsyncContextManager[Any]]
    run_once: Callable[[], Awaitable[object]]
    needs_loop: str | None = None

    @property
    def name(self) -> str:
        """The name in logs: the kind."""
        return self.kind


class Worker:
    """Runs background jobs while a `with` or an `async with` block lasts.

    `left_out` has the reason for every kind of job that this worker does not run.
    """

    def __init__(
        self,
        jobs: Sequence[PeriodicJob | ContinuousJob],
        *,
        clock: Clock,
        jitter: Callable[[], float] | None = None,
        notice: Notice | None = None,
        grace: timedelta = GRACE,
        left_out: Mapping[JobKind, str] | None = None,
    ) -> None:
        self.jobs = tuple(jobs)
        self.left_out = dict(left_out or {})
        self._clock = clock
        self._jitter = jitter or random.SystemRandom().random
        self._notice = notice
        self._grace = grace
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_running(self) -> bool:
        """Whether any job has not ended."""
        return any(thread.is_alive() for thread in self._threads) or any(
            not task.done() for task in self._tasks
        )

    def __enter__(self) -> Self:
        for job in self.jobs:
            if isinstance(job, ContinuousJob) and job.needs_loop is not None:
                raise UsageError(job.needs_loop)
        self._begin()
        for job in self.jobs:
            self._start_thread(job)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._join()

    async def __aenter__(self) -> Self:
        self._begin()
        for job in self.jobs:
            if isinstance(job, ContinuousJob):
                self._tasks.append(asyncio.create_task(self._keep_open(job)))
            elif job.run_once_async is not None:
                self._tasks.append(asyncio.create_task(self._keep_async(job, job.run_once_async)))
            else:
                self._start_thread(job)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        await asyncio.gather(self._end_tasks(), asyncio.to_thread(self._join))

    async def run_once(self) -> None:
        """Runs every job once, one after the other, with what is due now; raises the first error."""
        for job in self.jobs:
            if isinstance(job, ContinuousJob):
                report = await job.run_once()
            elif job.run_once is not None:
                report = await asyncio.to_thread(job.run_once, never)
            elif job.run_once_async is not None:
                report = await job.run_once_async(never)
                if job.under_way is not None:
                    await job.under_way.wait()
            if self._notice is not None:
                self._notice(job.name, report)

    def _begin(self) -> None:
        if self.is_running:
            raise UsageError("this worker runs already; make another with gate.worker()")
        for kind, reason in self.left_out.items():
            log.info("%s: left out: %s", kind, reason)
        self._stop.clear()
        self._threads, self._tasks = [], []

    def _schedule(self, job: PeriodicJob) -> Schedule:
        return Schedule(job, clock=self._clock, jitter=self._jitter, notice=self._notice)

    def _start_thread(self, job: PeriodicJob | ContinuousJob) -> None:
        thread = threading.Thread(target=self._keep, args=(job,), name=f"oncegate-{job.name}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _keep(self, job: PeriodicJob | ContinuousJob) -> None:
        try:
            if isinstance(job, ContinuousJob):
                asyncio.run(self._keep_open(job))
            elif job.run_once is not None:
                self._keep_blocking(job, job.run_once)
            elif job.run_once_apart is not None:
                asyncio.run(self._keep_async(job, job.run_once_apart))
        except BaseException:  # a handler that ends its process ends only this thread, and says so
            log.critical("%s has ended before its time", job.name, exc_info=True)
            raise

    def _keep_blocking(self, job: PeriodicJob, run_once: Callable[[Stopping], object]) -> None:
        schedule = self._schedule(job)
        while not self._stop.wait(schedule.seconds_left()):
            schedule.run(run_once, self._stop.is_set)

    async def _keep_async(self, job: PeriodicJob, run_once: AsyncRun) -> None:
        schedule = self._schedule(job)
        try:
            while not await self._is_stopped_within(schedule.seconds_left()):
                await schedule.run_async(run_once, self._stop.is_set)
            if job.under_way is not None:
                await job.under_way.wait()
        except asyncio.CancelledError:
            if job.under_way is not None:
                await job.under_way.cancel()
            raise

    async def _keep_open(self, job: ContinuousJob) -> None:
        try:
            async with job.open(max(0.0, self._grace.total_seconds() - 2 * NOTICE_WITHIN_SECONDS)):
                while not self._stop.is_set():  # noqa: ASYNC110  a thread may ask to stop
                    await asyncio.sleep(NOTICE_WITHIN_SECONDS)
        except Exception:
            log.critical("%s has ended before its time", job.name, exc_info=True)

    async def _is_stopped_within(self, seconds: float) -> bool:
        """Waits in short sleeps: the request to stop may come from another thread."""
        until_ms = self._clock.ticks_ms() + int(seconds * 1000)
        while not self._stop.is_set() and (left := until_ms - self._clock.ticks_ms()) > 0:
            await self._clock.pause_async(min(left / 1000, NOTICE_WITHIN_SECONDS))
        return self._stop.is_set()

    async def _end_tasks(self) -> None:
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=self._grace.total_seconds())
        for task in late:
            task.cancel("the worker is stopping")
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
            log.warning("%d jobs did not stop within %s and are left behind", number, self._grace)
