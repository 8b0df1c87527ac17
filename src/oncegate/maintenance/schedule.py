"""One caretaker's turns: when the next one comes, and what came of the last.

Holds no thread and no task: whoever runs the turns (`loop.py`, or a test with a clock of its own) asks how
long is left, waits, and takes the turn. A turn that fails is logged and comes again later, never sooner
than a turn that went well. Goes by ticks, so that no step of a wall clock hurries or delays it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from oncegate.clock import Clock
from oncegate.errors import ConfigError
from oncegate.model.backoff import Backoff

Stopping = Callable[[], bool]
AsyncTurn = Callable[[Stopping], Awaitable[object]]
Notice = Callable[[str, object], None]

SPREAD: Final = 0.25  # of the interval: so many may come a quarter early, and none late
FIRST_TURN_WITHIN: Final = timedelta(seconds=30)  # a process that is restarted daily still gets there
AGAIN_AFTER: Final = timedelta(seconds=1)  # where a bounded turn left something over
AFTER_FAILURE: Final = Backoff(base=timedelta(seconds=5), cap=timedelta(minutes=1))

log = logging.getLogger("oncegate.maintenance")


def never() -> bool:
    """The answer of somebody whom nobody asks to stop."""
    return False


class UnderWay(Protocol):
    """What outlasts a turn: waited for, or cancelled, when the turns end."""

    async def wait(self) -> None:
        """Waits until nothing is under way."""

    async def cancel(self) -> None:
        """Cancels what is under way and waits a moment for it to end."""


@dataclass(frozen=True, slots=True)
class Duty:
    """A caretaker as the loop sees it: a name, the longest time between two turns, and what a turn does.

    A blocking turn (`run_once`) is taken in a thread. One that awaits is taken in a task: of the user's own
    event loop (`run_once_async`), or, in a program that has none, of a loop in a thread apart
    (`run_once_apart`). All are handed a question to ask now and then: whether to stop.
    """

    name: str
    every: timedelta
    run_once: Callable[[Stopping], object] | None = None
    run_once_async: AsyncTurn | None = None
    run_once_apart: AsyncTurn | None = None
    under_way: UnderWay | None = None

    def __post_init__(self) -> None:
        if self.every <= timedelta(0):
            raise ConfigError(f"the interval of {self.name} must be longer than nothing")


class Schedule:
    """The turns of one duty."""

    def __init__(
        self, duty: Duty, *, clock: Clock, jitter: Callable[[], float], notice: Notice | None = None
    ) -> None:
        self.duty = duty
        self._clock = clock
        self._jitter = jitter
        self._notice = notice
        self._failures = 0
        self._next_ms = clock.ticks_ms() + _ms(min(duty.every, FIRST_TURN_WITHIN) * jitter())

    def seconds_left(self) -> float:
        """How long until the next turn."""
        return max(0, self._next_ms - self._clock.ticks_ms()) / 1000

    def take(self, turn: Callable[[Stopping], object], stopping: Stopping = never) -> None:
        """Takes a turn in the calling thread; whatever the caretaker raises is logged."""
        try:
            report = turn(stopping)
        except Exception as error:  # noqa: BLE001  one caretaker's failure must not end its turns
            self._failed(error)
        else:
            self._ended(report)

    async def take_async(self, turn: AsyncTurn, stopping: Stopping = never) -> None:
        """Takes a turn in the calling task; whatever the caretaker raises is logged."""
        try:
            report = await turn(stopping)
        except Exception as error:  # noqa: BLE001  one caretaker's failure must not end its turns
            self._failed(error)
        else:
            self._ended(report)

    def _ended(self, report: object) -> None:
        self._failures = 0
        self._plan(self.duty.every if getattr(report, "is_complete", True) else AGAIN_AFTER)
        if self._notice is not None:
            self._tell(self._notice, report)

    def _tell(self, notice: Notice, report: object) -> None:
        try:
            notice(self.duty.name, report)
        except Exception:
            log.exception("nobody could be told what %s did", self.duty.name)

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        wait = AFTER_FAILURE.ceiling(self._failures)
        self._plan(wait)
        log.warning(
            "%s failed (%d in a row) and is tried again within %d s: %s: %s",
            self.duty.name, self._failures, wait.total_seconds(), type(error).__name__, error,
            exc_info=error if self._failures == 1 else None,
        )  # fmt: skip

    def _plan(self, wait: timedelta) -> None:
        early = wait * (SPREAD * self._jitter())
        self._next_ms = self._clock.ticks_ms() + _ms(wait - early)


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
