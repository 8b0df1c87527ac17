"""Jobs: a thread of the process that got the confirmation carries a plan out.

A job reports its progress through the ledger (`plans.py`), now and then and at its end, so that any
process can show it; whether to stop is asked there too. A process that ends stops its jobs between two
batches; a new plan finds what is left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.dashboard.plans import JobState, JobWord, Plans
from oncegate.errors import OncegateError, StoreError

RUNNING_MAX: Final = 4
TELL_MS: Final = 300  # how often progress is told, and a wish to cancel noticed
LAST_WORD_TRIES: Final = 10
LAST_WORD_PAUSE_SECONDS: Final = 1.0


class Work(Protocol):
    """A job of one of the use cases: entries or heads of lanes."""

    @property
    def progress(self) -> Any:
        """How far it has come."""

    def run(self, on_progress: Callable[[Any], object], /) -> Any:
        """Runs to the end or until it is cancelled."""

    def cancel(self) -> None:
        """Stops after the part under way."""


class TooManyJobs(OncegateError):
    """Other jobs are running; this one must wait."""


class Jobs:
    """The jobs that this process carries out."""

    def __init__(self, plans: Plans, clock: Clock) -> None:
        self.plans = plans
        self._clock = clock
        self._running = 0
        self._lock = threading.Lock()

    def start(self, name: str, total: int, work: Work) -> bool:
        """Starts a plan in a thread of its own, once in all processes; False if it was started before."""
        self._take_place()
        try:
            word = self.plans.begin(name, total)
        except BaseException:
            self._give_place()
            raise
        if word is None:
            self._give_place()
            return False
        run = _Run(self.plans, self._clock, name, work, word)
        threading.Thread(target=self._carry_out, args=(run,), name="oncegate-page-job", daemon=True).start()
        return True

    def _take_place(self) -> None:
        with self._lock:
            if self._running >= RUNNING_MAX:
                raise TooManyJobs(f"{RUNNING_MAX} jobs are running already; wait for one to end")
            self._running += 1

    def _give_place(self) -> None:
        with self._lock:
            self._running -= 1

    def _carry_out(self, run: _Run) -> None:
        try:
            run.carry_out()
        finally:
            self._give_place()


class _Run:
    """One job on its way."""

    def __init__(self, plans: Plans, clock: Clock, name: str, work: Work, word: JobWord) -> None:
        self._plans, self._clock = plans, clock
        self._name, self._work, self._word = name, work, word
        self._told_at_ms = clock.ticks_ms()

    def carry_out(self) -> None:
        """Runs the work to its end, whatever that is, and tells it."""
        failure: str | None = None
        try:
            self._ask()
            self._work.run(self._advance)
        except OncegateError as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001  a job's end must be seen on its page, whatever it was
            failure = f"unexpected {type(error).__name__}: {error}"
        self._tell_end(failure)

    def _advance(self, progress: Any) -> None:
        now = self._clock.ticks_ms()
        if now - self._told_at_ms >= TELL_MS:
            self._told_at_ms = now
            with suppress(StoreError):  # the work itself finds out whether the store is away
                self._plans.tell(self._name, self._progress())
                self._ask()

    def _ask(self) -> None:
        if self._plans.is_cancelled(self._name):
            self._work.cancel()

    def _progress(self) -> JobWord:
        now = self._work.progress
        refused, refusals = getattr(now, "refused", 0), getattr(now, "refusals", ())
        return replace(self._word, done=now.done, changed=now.changed, refused=refused, refusals=refusals)

    def _tell_end(self, failure: str | None) -> None:
        """Tells the end, and tries for a while: a job without one looks as if its process had died."""
        state = JobState.CANCELLED if self._work.progress.is_cancelled else JobState.ENDED
        state = state if failure is None else JobState.BROKEN_OFF
        word = replace(self._progress(), state=state, failure=failure)
        for _ in range(LAST_WORD_TRIES):
            with suppress(StoreError):
                self._plans.tell(self._name, word)
                return
            self._clock.pause(LAST_WORD_PAUSE_SECONDS)
