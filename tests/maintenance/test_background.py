"""The loop: real threads and tasks, synchronised by events, stopped within bounds."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from oncegate import UsageError
from oncegate.clock import SystemClock
from oncegate.maintenance.background import Worker
from oncegate.maintenance.schedule import PeriodicJob
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.support.gates import until, wait_for

SOON = timedelta(milliseconds=5)
SHORT_GRACE = timedelta(milliseconds=50)


def keep(*jobs: PeriodicJob, grace: timedelta = timedelta(seconds=5)) -> Worker:
    return Worker(jobs, clock=SystemClock(), grace=grace)


class Seen:
    """A run that counts, and says when it was called three times."""

    def __init__(self) -> None:
        self.runs = 0
        self.thrice = threading.Event()

    def count(self, stopping: Any = None) -> None:
        self.runs += 1
        if self.runs >= 3:
            self.thrice.set()

    async def count_async(self, stopping: Any) -> None:
        self.count()


def fail(stopping: Any) -> object:
    raise RuntimeError("no luck")


async def seen_thrice(seen: Seen) -> None:
    await until(seen.thrice.is_set)


def hang(released: threading.Event, entered: threading.Event) -> Callable[[Any], object]:
    def run(stopping: Any) -> object:
        entered.set()
        return released.wait(DEADLINE_SECONDS)

    return run


def test_jobs_run_in_threads_while_the_block_lasts() -> None:
    """A blocking one in a thread, an awaiting one in a loop of its own thread."""
    plain, apart = Seen(), Seen()
    jobs = (
        PeriodicJob("plain", SOON, run_once=plain.count),
        PeriodicJob("apart", SOON, run_once_apart=apart.count_async, run_once_async=None),
    )
    with keep(*jobs) as worker:
        wait_for(plain.thrice)
        wait_for(apart.thrice)
        assert worker.is_running
    assert not worker.is_running


def test_jobs_run_in_the_users_own_loop_where_there_is_one() -> None:
    """Async handlers belong to the loop that the program runs in."""
    loops: list[Any] = []
    plain, own = Seen(), Seen()

    async def run(stopping: Any) -> None:
        loops.append(asyncio.get_running_loop())
        own.count()

    async def program() -> Any:
        async with keep(
            PeriodicJob("own", SOON, run_once_async=run, run_once_apart=run),
            PeriodicJob("plain", SOON, run_once=plain.count),
        ):
            await seen_thrice(own)
            await seen_thrice(plain)
        return asyncio.get_running_loop()

    loop = asyncio.run(program())
    assert set(loops) == {loop}


def test_one_that_fails_or_hangs_delays_no_other() -> None:
    """Each has a thread of its own."""
    released, entered, seen = threading.Event(), threading.Event(), Seen()
    jobs = (
        PeriodicJob("failing", SOON, run_once=fail),
        PeriodicJob("hanging", SOON, run_once=hang(released, entered)),
        PeriodicJob("good", SOON, run_once=seen.count),
    )
    with keep(*jobs):
        wait_for(entered)
        wait_for(seen.thrice)
        released.set()


def test_stopping_waits_for_a_run_under_way_and_tells_it() -> None:
    """A job that asks now and then can end early and cleanly."""
    entered, ended = threading.Event(), []

    def run(stopping: Callable[[], bool]) -> object:
        entered.set()
        while not stopping():
            pass
        ended.append(True)
        return None

    with keep(PeriodicJob("careful", SOON, run_once=run)):
        wait_for(entered)
    assert ended == [True]


def test_stopping_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """What hangs is left behind and told."""
    released, entered = threading.Event(), threading.Event()
    with (
        caplog.at_level(logging.WARNING, "oncegate.maintenance"),
        keep(PeriodicJob("hanging", SOON, run_once=hang(released, entered)), grace=SHORT_GRACE) as worker,
    ):
        wait_for(entered)
    assert worker.is_running
    assert "1 jobs did not stop" in caplog.text
    released.set()


def test_a_task_that_hangs_is_cancelled_when_the_grace_is_over() -> None:
    """And the program goes on."""
    cancelled: list[str] = []

    async def program() -> None:
        entered = asyncio.Event()

        async def run(stopping: Any) -> None:
            entered.set()
            try:
                await asyncio.wait_for(asyncio.Event().wait(), DEADLINE_SECONDS)
            except asyncio.CancelledError as error:
                cancelled.append(str(error))
                raise

        async with keep(PeriodicJob("hanging", SOON, run_once_async=run), grace=SHORT_GRACE) as worker:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await entered.wait()
        assert not worker.is_running

    asyncio.run(program())
    assert cancelled == ["the worker is stopping"]


def test_a_worker_stops_when_the_block_raises() -> None:
    """The error is the program's own and goes on."""
    worker = keep(PeriodicJob("good", SOON, run_once=Seen().count))
    with pytest.raises(ZeroDivisionError), worker:
        raise ZeroDivisionError
    assert not worker.is_running


def test_a_worker_can_be_used_again_but_not_twice_at_once() -> None:
    """A second block inside the first would double every run unseen."""
    worker = keep(PeriodicJob("good", SOON, run_once=Seen().count))
    for _ in range(2):
        with worker, pytest.raises(UsageError, match="runs already"), worker:
            pass


class Outlasting:
    """Something that goes on after its run."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.ends = asyncio.Event()

    async def wait(self) -> None:
        self.told.append("waited for")
        await self.ends.wait()

    async def cancel(self) -> None:
        self.told.append("cancelled")


@pytest.mark.parametrize("ends", [True, False])
def test_what_outlasts_a_run_is_waited_for_and_then_cancelled(ends: bool) -> None:
    """Nothing of ours goes on in the user's loop after the block."""

    async def program() -> list[str]:
        outlasting, seen = Outlasting(), Seen()
        job = PeriodicJob("long", SOON, run_once_async=seen.count_async, under_way=outlasting)
        async with keep(job, grace=SHORT_GRACE):
            await seen_thrice(seen)
            if ends:
                outlasting.ends.set()
        return outlasting.told

    assert asyncio.run(program()) == ["waited for"] if ends else ["waited for", "cancelled"]
