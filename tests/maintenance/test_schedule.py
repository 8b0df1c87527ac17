"""Runs of a job: when they come, driven by hand with a clock that only moves when told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from oncegate import ConfigError
from oncegate.maintenance.schedule import PeriodicJob, Schedule
from oncegate.testing import ManualClock


@dataclass
class Done:
    """A report that says whether something was left over."""

    is_complete: bool = True


class Post:
    """One job with its clock; what its runs do is up to the test."""

    def __init__(self, every: float = 60, jitter: float = 0.0, notice: Any = None) -> None:
        self.clock = ManualClock()
        self.run: Callable[[Any], object] = lambda stopping: Done()
        job = PeriodicJob("sweeper", timedelta(seconds=every))
        self.runs = Schedule(job, clock=self.clock, jitter=lambda: jitter, notice=notice)

    def take(self) -> float:
        """Runs the job when it is due and tells how long the next one is away."""
        self.clock.advance(self.runs.seconds_left())
        self.runs.run(self.run)
        return self.runs.seconds_left()


def fail(stopping: Any) -> object:
    raise RuntimeError("no luck")


@pytest.mark.parametrize(("jitter", "wait"), [(0.0, 60.0), (0.5, 52.5), (0.996, 45.06)])
def test_the_interval_is_the_longest_wait_and_jitter_only_shortens_it(jitter: float, wait: float) -> None:
    """Many processes started together do not come together; none comes late."""
    assert Post(jitter=jitter).take() == pytest.approx(wait, abs=0.002)


@pytest.mark.parametrize(("every", "within"), [(5, 5), (86_400, 30)])
def test_the_first_run_comes_soon_after_the_start(every: float, within: float) -> None:
    """A program that is restarted every day would otherwise never reach a nightly run."""
    assert Post(every, jitter=0.0).runs.seconds_left() == 0
    assert Post(every, jitter=0.99).runs.seconds_left() == pytest.approx(within, rel=0.02)


def test_a_run_that_left_something_over_is_followed_soon() -> None:
    """A bounded step, and then the next."""
    post = Post(every=86_400)
    post.run = lambda stopping: Done(is_complete=False)
    assert post.take() == 1
    post.run = lambda stopping: Done()
    assert post.take() == 86_400


def test_failures_are_logged_and_tried_again_with_growing_waits(caplog: pytest.LogCaptureFixture) -> None:
    """Neither hammered nor given up; the first one shows where."""
    post = Post(every=86_400)
    post.run = fail
    with caplog.at_level(logging.WARNING, "oncegate.maintenance"):
        waits = [post.take() for _ in range(7)]
    assert waits == [5, 10, 20, 40, 60, 60, 60]
    assert len(caplog.records) == 7
    assert "sweeper failed (1 in a row)" in caplog.text
    assert "RuntimeError: no luck" in caplog.records[6].getMessage()
    assert [record.exc_info is not None for record in caplog.records] == [True] + [False] * 6
    # And one that goes well ends it
    post.run = lambda stopping: Done()
    assert post.take() == 86_400
    post.run = fail
    assert post.take() == 5


def test_steps_of_the_wall_clock_change_no_turn() -> None:
    """I15: runs go by ticks."""
    post = Post()
    post.take()
    for step in (-365 * 86_400, 7200):
        post.clock.step_wall(step)
        assert post.runs.seconds_left() == 60


def test_a_notice_is_called_after_every_run(caplog: pytest.LogCaptureFixture) -> None:
    """And what telling raises is not the job's failure."""
    told: list[Any] = []
    post = Post(notice=lambda name, report: told.append((name, report)))
    post.take()
    assert told == [("sweeper", Done())]
    deaf = Post(notice=lambda name, report: 1 / 0)
    with caplog.at_level(logging.ERROR, "oncegate.maintenance"):
        assert deaf.take() == 60
    assert "could not be passed on" in caplog.text


def test_a_run_in_a_task_is_a_run_like_any_other() -> None:
    """Same waits, same isolation."""
    post = Post(every=86_400)

    async def well(stopping: Any) -> object:
        return Done()

    async def badly(stopping: Any) -> object:
        raise RuntimeError("no luck")

    asyncio.run(post.runs.run_async(badly))
    assert post.runs.seconds_left() == 5
    asyncio.run(post.runs.run_async(well))
    assert post.runs.seconds_left() == 86_400


def test_an_interval_of_nothing_is_refused() -> None:
    """It would be a loop that never rests."""
    with pytest.raises(ConfigError, match="sweeper"):
        PeriodicJob("sweeper", timedelta(0))
