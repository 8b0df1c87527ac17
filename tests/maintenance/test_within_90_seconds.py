"""A6: kill a worker at any moment, and within 90 s, at default settings, its key has its outcome.

In virtual time: the runs of `gate.worker()` are driven by a clock moved by hand, from the worst
moment on: a lease has just been renewed, and a run has just ended.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncegate.maintenance.schedule import PeriodicJob, Schedule
from oncegate.testing import CrashReached
from tests.support.bookings import BookingYard
from tests.support.gates import DeadAfter, Ledger, Style

pytestmark = pytest.mark.slow

POINTS = ["reserve.after", "effect.before", "effect.after", "step.after", "settle.before", "commit.after"]


class Shop(BookingYard):
    """Processes with everything at its default, but the length of the lease keeper's naps."""

    def __init__(self, ledger: Ledger, style: Style, ability: str) -> None:
        super().__init__(ledger, style, ability, lease="20s")

    def runs(self, jitter: float) -> tuple[Schedule, Any]:
        """The reconciler's runs, as the worker of a second process makes them."""
        gate = self.process()
        job = gate.worker(only=["recovery"]).jobs[0]
        assert isinstance(job, PeriodicJob)
        run = job.run_once_async if self.style.is_async else job.run_once_apart
        return Schedule(job, clock=self.ledger.clock, jitter=lambda: jitter), run

    def seconds_to_outcome(self, point: str, jitter: float = 0.0, phase: float = 0.0) -> float:
        """Kills a worker, some way between two runs of the other's reconciler, and lets time pass."""
        clock = self.ledger.clock
        runs, run = self.runs(jitter)
        clock.advance(runs.seconds_left())
        asyncio.run(runs.run_async(run))
        clock.advance(runs.seconds_left() * phase)
        with pytest.raises(CrashReached):
            self.style.admit(self.process(DeadAfter(point)), "bookings", {"id": 1})
        killed_at = clock.ticks_ms()
        while self.ledger.states() != ["committed"]:
            clock.advance(runs.seconds_left())
            asyncio.run(runs.run_async(run))
            assert clock.ticks_ms() - killed_at < 600_000, "not settled at all"
        return (clock.ticks_ms() - killed_at) / 1000


@pytest.mark.parametrize("ability", ["honours keys", "can be asked"])
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_workers_key_is_settled_within_90_seconds(
    ledger: Ledger, style: Style, point: str, ability: str
) -> None:
    """Whatever it had done, with no new arrival and no person."""
    shop = Shop(ledger, style, ability)
    assert shop.seconds_to_outcome(point) <= 90
    assert shop.terminal.most_for_one_key == 1


@pytest.mark.slow
@pytest.mark.parametrize("jitter", [0.0, 0.99])
@pytest.mark.parametrize("phase", [tenth / 10 for tenth in range(10)])
def test_the_90_seconds_hold_wherever_between_two_runs_it_dies(
    ledger: Ledger, phase: float, jitter: float
) -> None:
    """The slowest case: the call was never made, believed only after a request's longest life."""
    shop = Shop(ledger, Style("plain"), "can be asked")
    assert shop.seconds_to_outcome("effect.before", jitter, phase) <= 90
    assert shop.terminal.sold == 1
