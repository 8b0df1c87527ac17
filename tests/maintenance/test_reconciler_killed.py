"""I6: a reconciler that is itself killed, anywhere, once and again, or that runs beside another."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oncegate import Content
from oncegate.crashpoints import CrashPoints
from oncegate.maintenance.content_scan import ContentScan
from oncegate.maintenance.reconciler import Reconciler
from oncegate.testing import CrashReached
from tests.support.bookings import BookingYard
from tests.support.gates import DeadAfter, Ledger, Style, ledger, style

pytestmark = pytest.mark.slow

__all__ = ["ledger", "style"]

FIRST_DEATHS = ["reserve.after", "effect.before", "effect.after", "settle.before"]
SECOND_DEATHS = [
    "reserve.before", "commit.before", "commit.after", "recover.after", "probe.before", "probe.after",
    "effect.before", "effect.after", "step.after", "settle.before", "settle.after",
]  # fmt: skip


class Yard(BookingYard):
    """Workers and reconcilers, each a process that may die."""

    def __init__(self, ledger: Ledger, style: Style, ability: str) -> None:
        super().__init__(ledger, style, ability, attempts_max=99)

    def reconcile(self, crashpoints: CrashPoints | None = None) -> None:
        reconciler = Reconciler(self.process(crashpoints), at_once=True)
        with contextlib.suppress(CrashReached):
            if self.style.is_async:
                asyncio.run(reconciler.run_once_async())
            else:
                reconciler.run_once()

    def lapse(self) -> None:
        self.ledger.lapse()
        self.ledger.clock.advance(61)


@pytest.mark.parametrize("ability", ["honours keys", "can be asked"])
@pytest.mark.parametrize("first", FIRST_DEATHS)
def test_a_reconciler_killed_at_every_point_leaves_one_effect(
    ledger: Ledger, style: Style, first: str, ability: str
) -> None:
    """Killed at one point after the other on the same key, and then let live."""
    yard = Yard(ledger, style, ability)
    with pytest.raises(CrashReached):
        style.admit(yard.process(DeadAfter(first)), "bookings", {"id": 1})
    for point in SECOND_DEATHS:
        yard.lapse()
        yard.reconcile(DeadAfter(point))
        assert yard.terminal.most_for_one_key <= 1
    for _ in range(2):
        yard.lapse()
        yard.reconcile()
    assert (ledger.states(), yard.terminal.most_for_one_key) == (["committed"], 1)


def test_killed_reconcilers_die_where_they_are_meant_to(ledger: Ledger) -> None:
    """I21: each of those points is really reached by a reconciler."""
    reached: set[str] = set()
    for ability in ("honours keys", "can be asked"):
        for point in SECOND_DEATHS:
            yard = Yard(ledger, Style("plain"), ability)
            event = {"id": f"{ability} {point}"}
            with pytest.raises(CrashReached):
                yard.style.admit(yard.process(DeadAfter("effect.before")), "bookings", event)
            yard.lapse()
            dead = DeadAfter(point)
            yard.reconcile(dead)
            reached |= {point} if dead.is_dead else set()
            yard.lapse()
            yard.reconcile()
    assert reached == set(SECOND_DEATHS)


def test_scans_at_once_flag_each_pair_once(ledger: Ledger) -> None:
    """Several look at the same marks; one record an entry, however they meet."""
    gate = ledger.gate()
    content = Content(("date",), "{client}")
    Style("plain").register(gate, "routes", lambda event, once: "done", content=content)
    for number in range(40):
        gate.admit_sync("routes", {"id": number, "client": number // 2, "date": "2025-10-26"})
    scans = [ContentScan(ledger.gate().engine.store, ledger.clock, step_marks=3) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        reports: list[Any] = list(threads.map(lambda scan: scan.run_once(), scans))
    assert sum(len(report.pairs) for report in reports) == 20
    assert ledger.log_kinds().count(40) == 40
