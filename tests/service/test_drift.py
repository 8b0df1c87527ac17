"""Drift between realtime calls and confirmations, over HTTP, on both ledgers (F8, C4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from oncegate.cli.main import main
from oncegate.errors import ConfigError
from oncegate.maintenance.drift_scan import DriftScan
from oncegate.service.settings import ContractSettings
from oncegate.service.surfaces import drift_scan
from oncegate.signals.alerts import Signal, evaluate
from oncegate.signals.definition import Level
from oncegate.signals.measures import measure
from oncegate.store import Store
from oncegate.testing import ManualClock
from oncegate.wiring import Gate
from tests.service.site import Site, settings


class Warehouse:
    """A served contract whose clock is moved by hand."""

    def __init__(self, site: Site, clock: ManualClock, url: str) -> None:
        self.site, self.clock, self.url = site, clock, url
        self.scan = drift_scan(site.gate, ContractSettings())

    def say(self, path: str, window: str, token: str | None = None, **body: Any) -> None:
        given = {"correlation_id": str(uuid4()), "window": window, **body}
        answer = self.site.partner("POST", f"/wes/v1/{path}", given, token)
        assert answer.status == 200, answer.body

    def drift(self, store: Store) -> list[Signal]:
        with store.look() as session:
            found = evaluate(measure(session, self.clock))
        return [one for one in found if one.definition.name == "drift"]


@pytest.fixture(params=["sqlite", "postgres"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Warehouse]:
    is_postgres = request.param == "postgres"
    url = request.getfixturevalue("ledger_url") if is_postgres else f"sqlite:///{tmp_path}/ledger.db"
    clock = ManualClock()
    with Site(tmp_path, settings(), Gate(url, clock=clock)).serving() as site:
        yield Warehouse(site, clock, url)


@pytest.mark.slow
def test_windows_that_differ_are_reported_by_partner(warehouse: Warehouse) -> None:
    """A quantity, an item of each side, another partner's window of the same name; replays count once."""
    for item, quantity in (("a", 4), ("a", 1), ("b", 1)):
        warehouse.say("realtime", "06", item=item, quantity=quantity)
    again = {"correlation_id": str(uuid4()), "window": "06", "item": "c", "quantity": 2}
    for _ in range(3):
        warehouse.site.partner("POST", "/wes/v1/realtime", again)
    lines = [{"item": "a", "quantity": 4}, {"item": "c", "quantity": 2}, {"item": "d", "quantity": 1}]
    warehouse.say("confirmations", "06", lines=lines)
    warehouse.say("realtime", "07", item="a", quantity=1)
    warehouse.say("confirmations", "07", lines=[{"item": "a", "quantity": 1}])
    warehouse.say("realtime", "06", warehouse.site.other, item="z", quantity=9)
    warehouse.say("confirmations", "06", warehouse.site.other, lines=[{"item": "z", "quantity": 9}])

    assert not warehouse.scan.run_once().judged  # nothing is judged while calls may still come
    warehouse.clock.advance(16 * 60)
    report = warehouse.scan.run_once()

    (found,) = report.drifts
    assert (found.tenant, found.partner, found.window) == ("acme", "exec-1", "06")
    assert (found.differing, found.only_realtime, found.only_confirmed) == (1, 1, 1)
    assert (found.realtime_calls, found.examples) == (4, ("a", "b", "d"))
    assert report.judged == 3
    (signal,) = warehouse.drift(warehouse.site.gate.engine.store)
    assert (signal.surface, signal.value, signal.level) == ("acme/exec-1", 1, Level.TICKET)
    assert signal.detail == "latest: 06"
    assert "--partner acme/exec-1" in signal.action


def test_a_late_realtime_call_heals_a_window_and_the_signal(warehouse: Warehouse) -> None:
    warehouse.say("confirmations", "06", lines=[{"item": "a", "quantity": 2}])
    warehouse.clock.advance(16 * 60)
    assert len(warehouse.scan.run_once().drifts) == 1
    warehouse.say("realtime", "06", item="a", quantity=2)
    warehouse.clock.advance(16 * 60)
    assert warehouse.scan.run_once().drifts == []
    (signal,) = warehouse.drift(warehouse.site.gate.engine.store)
    assert (signal.value, signal.level) == (0, Level.OK)


def test_a_window_that_is_never_confirmed_is_told_after_a_day(warehouse: Warehouse) -> None:
    warehouse.say("realtime", "06", item="a", quantity=2)
    warehouse.clock.advance(23 * 3600)
    assert warehouse.scan.run_once().drifts == []
    warehouse.clock.advance(2 * 3600)
    (found,) = warehouse.scan.run_once().drifts
    assert found.unconfirmed


@pytest.mark.slow
def test_what_was_read_is_read_once_and_a_restart_finds_the_same(warehouse: Warehouse) -> None:
    """Each run reads what is new; a bounded run judges nothing before all was read."""
    for number in range(6):
        warehouse.say("realtime", "06", item=f"i{number}", quantity=1)
    warehouse.say("confirmations", "06", lines=[{"item": "i0", "quantity": 1}])
    warehouse.clock.advance(16 * 60)
    first = warehouse.scan.look()
    again = warehouse.scan.look()
    assert [one.only_realtime for one in first.drifts] == [5]
    assert again.drifts == first.drifts

    bounded = DriftScan(
        warehouse.site.gate.engine.store, warehouse.clock, realtime="wes.realtime",
        confirmed="wes.confirmations.windows", entries_max=1,
    )  # fmt: skip
    assert not bounded.look().is_complete
    warehouse.scan = drift_scan(warehouse.site.gate, ContractSettings())
    assert warehouse.scan.look().drifts == first.drifts


@pytest.mark.slow
def test_more_than_one_run_reads_is_read_by_the_next_and_grey_until_then(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I28: a burst made the comparison begin again at every run, and the signal faded."""
    for name, value in (("PAGE", 2), ("OVERLAP", 1)):
        monkeypatch.setattr(f"oncegate.maintenance.drift_scan.{name}", value)
    scan = DriftScan(
        warehouse.site.gate.engine.store, warehouse.clock, realtime="wes.realtime",
        confirmed="wes.confirmations.windows", entries_max=4,
    )  # fmt: skip

    def shown() -> list[tuple[str, float, Level]]:
        found = warehouse.drift(warehouse.site.gate.engine.store)
        return [(one.surface, one.value, one.level) for one in found]

    warehouse.say("realtime", "06", item="a", quantity=1)
    warehouse.say("confirmations", "06", lines=[{"item": "a", "quantity": 2}])
    warehouse.clock.advance(16 * 60)
    behind, differs = ("all partners", 0, Level.UNKNOWN), ("acme/exec-1", 1, Level.TICKET)
    while not scan.run_once().is_complete:
        assert shown() == [behind]
    assert shown() == [differs]
    for number in range(9):  # a burst, and more of it while it is read
        warehouse.say("realtime", "07", item=f"i{number}", quantity=1)
    assert not scan.run_once().is_complete
    assert shown() == [differs, behind]
    warehouse.say("realtime", "07", item="late", quantity=1)
    lines = [{"item": f"i{number}", "quantity": 1} for number in range(9)]
    warehouse.say("confirmations", "07", lines=[*lines, {"item": "late", "quantity": 1}])
    warehouse.clock.advance(16 * 60)
    runs = 0
    while not (report := scan.run_once()).is_complete:
        assert shown() == [differs, behind]
        assert (runs := runs + 1) < 20
    assert (report.judged, [one.window for one in report.drifts]) == (2, ["06"])
    assert shown() == [differs]


def test_windows_beyond_the_bound_make_it_grey(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I28: a window that finds room on one side only is no difference."""
    monkeypatch.setattr("oncegate.maintenance.drift_scan.WINDOWS_MAX", 2)
    for window in ("06", "07", "08"):
        warehouse.say("realtime", window, item="a", quantity=1)
    warehouse.say("confirmations", "06", lines=[{"item": "a", "quantity": 1}])
    warehouse.clock.advance(16 * 60)
    assert (warehouse.scan.run_once().is_complete, warehouse.scan.run_once().drifts) == (False, [])
    (signal,) = warehouse.drift(warehouse.site.gate.engine.store)
    assert signal.level is Level.UNKNOWN


def test_the_command_shows_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By real time: a window that is an hour old."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/ledger.db"
    clock = ManualClock(wall_ms=_now_ms() - 3_600_000)
    with Site(tmp_path, settings(), Gate(url, clock=clock)).serving() as site:
        warehouse = Warehouse(site, clock, url)
        warehouse.say("realtime", "06", item="a", quantity=2)
        warehouse.say("confirmations", "06", lines=[{"item": "a", "quantity": 3}])
    capsys.readouterr()

    assert main(["signals", "drift", "--url", url]) == 1
    shown = capsys.readouterr()
    assert "acme/exec-1" in shown.out
    assert "1 windows judged, 1 differ" in shown.err
    assert main(["signals", "drift", "--url", url, "--partner", "exec-9"]) == 0
    assert main(["signals", "drift", "--url", url, "--json"]) == 1
    assert '"differing":1' in capsys.readouterr().out.replace(" ", "")


def _now_ms() -> int:
    from oncegate.clock import SystemClock

    return SystemClock().wall_ms()


def test_a_field_that_is_no_path_is_a_mistake_of_the_settings(tmp_path: Path) -> None:
    given = settings(contract=ContractSettings(item_field=""))

    async def open_service() -> None:
        Site(tmp_path, given).service.open()

    with pytest.raises(ConfigError):
        asyncio.run(open_service())
