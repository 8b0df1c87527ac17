"""The runs of one background job: when the next one is due, and what the last one did.

Holds no thread and no task. The worker (`background.py`), or a test with its own clock, asks how long to
wait, waits, and starts the run. A run that fails is logged and repeated later, never sooner than after a
successful run. Intervals are measured in ticks, so a step of the wall clock changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, Protocol

from oncegate.clock import Clock
from oncegate.errors import ConfigError
from oncegate.model.backoff import Backoff

Stopping = Callable[[], bool]
AsyncRun = Callable[[Stopping], Awaitable[object]]
Notice = Callable[[str, object], None]
JobKind = Literal[
    "recovery", "pruning", "scans", "watch", "accepted", "deliveries", "sources", "snapshots", "journal"
]  # fmt: skip

SPREAD: Final = 0.25  # each run waits 75-100 % of its interval
FIRST_RUN_WITHIN: Final = timedelta(seconds=30)  # a process that is restarted daily still gets there
AGAIN_AFTER: Final = timedelta(seconds=1)  # where a bounded run left something over
AFTER_FAILURE: Final = Backoff(base=timedelta(seconds=5), cap=timedelta(minutes=1))

log = logging.getLogger("oncegate.maintenance")


def never() -> bool:
    """The answer where there is nothing that could ask to stop."""
    return False


class UnderWay(Protocol):
    """Work that outlasts a run: the worker waits for it, or cancels it, when it stops."""

    async def wait(self) -> None:
        """Waits until nothing is under way."""

    async def cancel(self) -> None:
        """Cancels what is under way and waits a moment for it to end."""


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A background job: a name, the longest time between two runs, and what a run does.

    A blocking run (`run_once`) is called in a thread. An async run is called in a task: of the user's own
    event loop (`run_once_async`), or, in a program without one, of a loop in a separate thread
    (`run_once_apart`). Each gets a function that tells whether to stop. A job without a `kind` is always
    chosen.
    """

    name: str
    every: timedelta
    run_once: Callable[[Stopping], object] | None = None
    run_once_async: AsyncRun | None = None
    run_once_apart: AsyncRun | None = None
    under_way: UnderWay | None = None
    kind: JobKind | None = None

    def __post_init__(self) -> None:
        if self.every <= timedelta(0):
            raise ConfigError(f"the interval of {self.name} must be longer than nothing")


class Schedule:
    """The runs of one job."""

    def __init__(
        self, job: PeriodicJob, *, clock: Clock, jitter: Callable[[], float], notice: Notice | None = None
    ) -> None:
        self.job = job
        self._clock = clock
        self._jitter = jitter
        self._notice = notice
        self._failures = 0
        self._next_ms = clock.ticks_ms() + _ms(min(job.every, FIRST_RUN_WITHIN) * jitter())

    def seconds_left(self) -> float:
        """How long until the next run."""
        return max(0, self._next_ms - self._clock.ticks_ms()) / 1000

    def run(self, run_once: Callable[[Stopping], object], stopping: Stopping = never) -> None:
        """Runs the job in the calling thread; an error is logged."""
        try:
            report = run_once(stopping)
        except Exception as error:  # noqa: BLE001  one failed run must not end the job
            self._failed(error)
        else:
            self._ended(report)

    async def run_async(self, run_once: AsyncRun, stopping: Stopping = never) -> None:
        """Runs the job in the calling task; an error is logged."""
        try:
            report = await run_once(stopping)
        except Exception as error:  # noqa: BLE001  one failed run must not end the job
            self._failed(error)
        else:
            self._ended(report)

    def _ended(self, report: object) -> None:
        self._failures = 0
        self._plan(self.job.every if getattr(report, "is_complete", True) else AGAIN_AFTER)
        if self._notice is not None:
            self._report(self._notice, report)

    def _report(self, notice: Notice, report: object) -> None:
        try:
            notice(self.job.name, report)
        except Exception:
            log.exception("the report of %s could not be passed on", self.job.name)

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        wait = AFTER_FAILURE.ceiling(self._failures)
        self._plan(wait)
        log.warning(
            "%s failed (%d in a row) and is tried again within %d s: %s: %s",
            self.job.name, self._failures, wait.total_seconds(), type(error).__name__, error,
            exc_info=error if self._failures == 1 else None,
        )  # fmt: skip

    def _plan(self, wait: timedelta) -> None:
        early = wait * (SPREAD * self._jitter())
        self._next_ms = self._clock.ticks_ms() + _ms(wait - early)


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
