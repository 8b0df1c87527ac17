"""`oncegate surfaces document`, `windows` and `window`; one trace over two ledgers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate, Verdict
from oncegate.clock import SystemClock
from oncegate.model.retention import RETENTION_FLOOR
from oncegate.model.surface_decisions import SurfaceDecisions, decided_rule
from oncegate.model.trace import Context
from oncegate.review.windows import REPEATS_MIN, Delays, delays_of
from oncegate.store.tallies import of_delay
from oncegate.testing import ManualClock
from tests.cli.conftest import Ended

Call = Callable[..., Ended]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A ledger at which one event came again thirty times within a minute, and once more after ten days."""
    made = f"sqlite:///{tmp_path / 'orders.db'}"
    clock = ManualClock(SystemClock().wall_ms() - 11 * 86_400_000)
    with Gate(made, clock=clock) as gate:
        gate.handler("or|ders", key="{id}")(lambda event: None)
        for _ in range(31):
            gate.admit_sync("or|ders", {"id": 1})
            clock.advance(1)
        clock.advance(10 * 86_400)
        assert gate.admit_sync("or|ders", {"id": 1}).verdict is Verdict.REPLAY
    return made


@pytest.mark.parametrize(
    ("milliseconds", "bound"), [(0, 1), (1000, 1), (1001, 2), (2000, 2), (2001, 4), (864_000_000, 2**20)]
)
def test_a_delay_is_counted_below_its_bound(milliseconds: int, bound: int) -> None:
    assert delays_of({of_delay(milliseconds): 1}).buckets == ((bound, 1),)


def test_a_window_is_twice_the_longest_delay_and_never_below_the_floor() -> None:
    many = REPEATS_MIN
    assert Delays(((3600, many),)).proposed == RETENTION_FLOOR
    assert Delays(((3600, many), (20 * 86_400, 1))).proposed == timedelta(days=40)
    assert Delays(((3600, many - 1),)).proposed is None
    assert Delays(()).proposed is None


def test_a_decided_window_is_never_shorter_than_the_declared_one(tmp_path: Path) -> None:
    with Gate(f"sqlite:///{tmp_path / 'ledger.db'}") as gate:
        gate.handler("orders", key="{id}", retention="90d")(lambda event: None)
        rule = gate.engine.surface("orders").rule
    assert decided_rule(rule, SurfaceDecisions(retention="30d")).retention == timedelta(days=90)
    assert decided_rule(rule, SurfaceDecisions(retention="120d")).retention == timedelta(days=120)


def test_windows_are_proposed_and_applied_by_a_person(call: Call, url: str) -> None:
    (found,) = map(json.loads, call("surfaces", "windows", "--json", "--url", url).out.splitlines())
    assert (found["repeats"], found["half_within"]) == (31, "16s")
    proposed = found["proposed"]
    assert "or|ders" in call("surfaces", "windows", "--url", url).out
    rest = ("--reason", "late replays", "--yes", "--url", url)
    done = call("surfaces", "window", "or|ders", "--apply", *rest)
    assert done.out == f"or|ders: retention {proposed}\n"
    assert "not applied below" in call("surfaces", "window", "or|ders", "--apply", "1d", *rest).complaint
    with Gate(url) as gate:
        gate.handler("or|ders", key="{id}", retention="15d")(lambda event: None)
        gate.engine.check_surfaces()
        assert gate.engine.surface("or|ders").rule.retention > timedelta(days=15)


def test_a_page_for_operators_is_written(call: Call, url: str, tmp_path: Path) -> None:
    assert call("surfaces", "document", "--out", str(tmp_path / "pages"), "--url", url).code == 0
    text = (tmp_path / "pages" / "or-ders.md").read_text("utf-8")
    for part in (
        "# or\\|ders",
        "| key | `{id}` |",
        "| expected replay | 30 | normal |",
        "Proposed window:",
    ):
        assert part in text
    assert call("surfaces", "document", "or|ders", "--url", url).out.startswith("# or")
    assert "known: or|ders" in call("surfaces", "document", "none", "--url", url).complaint


def test_one_trace_goes_over_two_ledgers_and_shows_repeats(call: Call, tmp_path: Path) -> None:
    here, there = (f"sqlite:///{tmp_path / name}.db" for name in ("shop", "ship"))
    context = Context(correlation_id="order-7")

    def take(url: str, surface: str, times: int) -> None:
        with Gate(url) as gate:
            gate.handler(surface, key="{id}")(lambda event: None)
            for _ in range(times):
                gate.admit_sync(surface, {"id": surface}, context=context)

    take(here, "orders", 3)
    take(there, "parcels", 1)
    lines: list[dict[str, Any]] = [
        json.loads(line)
        for line in call("trace", "order-7", "--also", there, "--json", "--url", here).out.splitlines()
    ]
    assert [(one["place"], one["ledger"] is None, one["state"]) for one in lines] == [
        ("orders", True, "committed, came again 2 times"),
        ("parcels", False, "committed"),
    ]
    text = call("trace", "order-7", "--also", there, "--url", here).out
    assert "LEDGER" in text
    assert "parcels" in text
