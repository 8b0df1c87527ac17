"""`oncegate restored`: what a ledger that went back has lost, listed and decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate
from oncegate.cli.main import main
from oncegate.clock import SystemClock
from oncegate.gate.admission import Verdict
from oncegate.signals.measures import measure
from oncegate.stores.sqlite import SqliteStore
from tests.stores.test_replaced_files import admitted, copied, moved


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger that has lost two events, N-2 and N-3."""
    path = tmp_path / "ledger.db"
    with gate_on(path) as gate:
        gate.admit_sync("mail", {"id": "N-1"})
        copy = copied(path)
        gate.admit_sync("mail", {"id": "N-2"})
        gate.admit_sync("mail", {"id": "N-3"})
        moved(copy, path)
        admitted(gate, "mail", 4)
    return path


def gate_on(path: Path) -> Gate:
    gate = Gate(store=SqliteStore(path))
    gate.handler("mail", key="{id}")(lambda event: "sent")
    return gate


def run(path: Path, *words: str) -> int:
    return main(["restored", *words, "--url", f"sqlite:///{path}"])


def test_list_shows_what_is_in_doubt(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ledger, "list", "--json") == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [event["now"] for event in shown["events"]] == ["held", "held"]
    assert run(ledger, "list") == 0
    said = capsys.readouterr()
    assert "effects since" in said.err
    assert "mail" in said.out


def test_fenced_events_do_not_run_and_released_ones_do(ledger: Path) -> None:
    with gate_on(ledger) as gate:
        key = gate.admit_sync("mail", {"id": "N-3"}).key
    assert run(ledger, "release", key[:12], "--reason", "it was not sent") == 0
    assert run(ledger, "fence", "--all", "--yes", "--reason", "it was sent") == 0
    with gate_on(ledger) as gate:
        assert gate.admit_sync("mail", {"id": "N-3"}).verdict is Verdict.RUN
        assert gate.admit_sync("mail", {"id": "N-2"}).verdict is Verdict.REPLAY


def test_alarm_ends_when_nothing_waits_any_more(ledger: Path) -> None:
    def incidents() -> int:
        with SqliteStore(ledger).look() as session:
            return len(measure(session, SystemClock()).went_back)

    assert run(ledger, "close", "--reason", "too early") == 0
    assert incidents() == 1
    assert run(ledger, "fence", "--all", "--yes", "--reason", "they were sent") == 0
    assert run(ledger, "close", "--reason", "all decided") == 0
    assert incidents() == 0


def test_a_backup_that_is_restored_runs_nothing_before_a_person_says_so(tmp_path: Path) -> None:
    """Given a restore without any process alive: N-2 has happened, and the ledger does not know it."""
    path, lost = tmp_path / "ledger.db", tmp_path / "lost.csv"
    with gate_on(path) as gate:
        gate.admit_sync("mail", {"id": "N-1"})
        copy = copied(path)
        gate.admit_sync("mail", {"id": "N-2"})
    moved(copy, path)

    words = ("begin", "--since", "1h", "--reason", "backup of 02:00")
    assert (run(path, *words), run(path, *words)) == (0, 0)
    with gate_on(path) as gate:
        assert gate.admit_sync("mail", {"id": "N-2"}).is_paused

    lost.write_text("id\nN-2\n", "utf-8")
    url = ("--url", f"sqlite:///{path}")
    assert main(["import", str(lost), "--surface", "mail", *url]) == 0
    assert main(["surfaces", "switch", "mail", "on", "--reason", "compared", "--yes", *url]) == 0
    with gate_on(path) as gate:
        verdicts = [gate.admit_sync("mail", {"id": f"N-{n}"}).verdict.value for n in (1, 2, 3)]
    assert verdicts == ["replay", "replay", "run"]


def test_begin_says_when_it_paused_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No surface, or a time still to come, is no success: a script would start the processes."""
    path = tmp_path / "ledger.db"
    SqliteStore(path).connect().close()
    for words in ((), ("--json",)):
        assert run(path, "begin", "--since", "1h", "--reason", "backup", *words) == 1
    assert "no surface is registered" in capsys.readouterr().err
    with gate_on(path) as gate:
        gate.admit_sync("mail", {"id": "N-1"})
    assert run(path, "begin", "--since", "2999-01-01T00:00Z", "--reason", "backup") == 2
    assert "in the future" in capsys.readouterr().err
    with gate_on(path) as gate:
        assert not gate.admit_sync("mail", {"id": "N-2"}).is_paused


def test_begin_writes_down_the_time_for_a_surface_that_was_paused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with gate_on(path) as gate:
        gate.admit_sync("mail", {"id": "N-1"})
    url = ("--url", f"sqlite:///{path}")
    assert main(["surfaces", "switch", "mail", "paused", "--reason", "holiday", "--yes", *url]) == 0
    assert run(path, "begin", "--since", "2026-01-02T03:04Z", "--reason", "backup") == 0
    with SqliteStore(path).look() as session:
        notes = [one.note or "" for one in session.log_before(None, 10, by_people=False)]
    assert any("2026-01-02T03:04" in note for note in notes)
    with gate_on(path) as gate:
        assert gate.admit_sync("mail", {"id": "N-2"}).is_paused
