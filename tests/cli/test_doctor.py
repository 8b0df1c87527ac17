"""`oncegate doctor`: every line ok, warn or fail, with what to do."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import namedtuple

import pytest

from oncegate import __version__, open_store
from oncegate.cli import doctor
from oncegate.cli.doctor import Status, examine
from oncegate.stores.sqlite import schema
from oncegate.testing import ManualClock
from tests.cli.conftest import contents


@pytest.fixture(autouse=True)
def on_a_local_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run in memory or in a container's layer, which doctor would warn of."""
    monkeypatch.setattr("oncegate.cli.doctor.filesystem_of", lambda _folder: "ext4")


@pytest.mark.slow
def test_healthy_ledger_passes(call, script):
    """A fresh ledger is ok in every line, and the code says so."""
    call("migrate")
    assert not call("doctor").err
    ended = script("doctor")  # as a process, which may warn of the disk that it runs on
    assert ended.code == 0
    assert not [line for line in ended.out.splitlines() if line.startswith("fail")]
    for said in (
        f"oncegate {__version__}, Python 3.",
        sqlite3.sqlite_version,
        f"version {schema.all_migrations()[-1].number}, up to date",
        "survives power loss",
        "none yet",
        "writing       possible",
    ):
        assert said in ended.out


def test_doctor_counts_and_warns_about_what_waits(call, ledger, tmp_path):
    """Stranded claims and people's work are warnings with the command to see them; nothing is changed."""
    before = contents(tmp_path)
    ended = call("doctor")
    assert ended.code == 0
    assert "1 in_flight" not in ended.out
    assert "2 in_flight, 4 committed, 1 failed, 1 retryable, 1 unknown, 2 quarantined" in ended.out
    assert "1 in flight with a lapsed lease, 1 to be tried again" in ended.out
    assert "see: oncegate entries list --state unknown --state quarantined" in ended.out
    warned = [line for line in ended.out.splitlines() if line.startswith("warn")]
    said = ("stranded", "for a person", "signal        failed on", "signal        sender_bugs on")
    assert all(f"warn  {what}" in line for what, line in zip(said, warned, strict=True))
    assert ended.err == "0 failed, 4 to look at\n"
    assert contents(tmp_path) == before


def test_json_has_one_object_a_line(call, ledger):
    """Monitoring reads status and next step without parsing sentences."""
    lines = [json.loads(line) for line in call("doctor", "--json").out.splitlines()]
    by_name = {line["what"]: line for line in lines}
    assert by_name["integrity"]["status"] == "ok"
    assert by_name["stranded"]["status"] == "warn"
    assert "entries list" in by_name["stranded"]["next_step"]


def test_weaker_durability_is_a_failure(call, ledger):
    """A setting that loses records at a power cut is never ok."""
    ended = call("doctor", "--url", "sqlite:///oncegate.db?synchronous=NORMAL")
    assert ended.code == 1
    assert "use synchronous=FULL" in ended.out


@pytest.mark.parametrize(
    ("free", "status"), [(2**40, Status.OK), (2**29, Status.WARN), (2**20, Status.FAIL)]
)
def test_little_disk_space_is_told_in_time(ledger, monkeypatch, free, status):
    """First a warning, then a failure."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**41, 0, free))
    lines = {line.what: line for line in _examined(ledger, ManualClock())}
    assert lines["disk"].status is status


def test_clock_without_a_plausible_year_is_a_failure(ledger):
    """A clock that was never set is found before it judges events."""
    wall = [line for line in _examined(ledger, ManualClock(wall_ms=0)) if line.what == "wall clock"]
    assert wall[0].status is Status.FAIL


def test_newest_entry_from_the_future_is_a_warning(ledger):
    """A wall clock that went back shows against the ledger's own entries."""
    wall = [line for line in _examined(ledger, ManualClock(1_770_000_000_000)) if line.what == "wall clock"]
    assert [line.status for line in wall] == [Status.OK, Status.WARN]


def test_machine_without_boot_names_is_a_warning(ledger):
    """Where boots have no names, leases are kept more carefully, and the doctor says so."""
    clock = ManualClock()
    clock.reboot("")
    lines = {line.what: line for line in _examined(ledger, clock)}
    assert lines["lease clock"].status is Status.WARN


def test_busy_ledger_is_not_a_sick_one(call, ledger):
    """Another process that is just writing is no finding."""
    connection = sqlite3.connect(ledger, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    ended = call("doctor")
    connection.close()
    assert ended.code == 0
    assert "another process is writing right now" in ended.out


def test_ledger_that_takes_no_record_is_found_before_the_first_event(call, ledger):
    """Writing is rehearsed to the end: the lock alone says nothing about whether events can be settled."""
    connection = sqlite3.connect(ledger, isolation_level=None)
    connection.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON oncegate_log BEGIN SELECT RAISE(ABORT, 'not today'); END"
    )
    connection.close()
    ended = call("doctor")
    assert ended.code == 1
    assert "not today" in ended.out


def test_sizes_are_readable():
    """Bytes are shown in the unit a person would use."""
    assert [doctor._size(2**power) for power in (0, 10, 20, 30, 40)] == [
        "1 B",
        "1.0 KiB",
        "1.0 MiB",
        "1.0 GiB",
        "1.0 TiB",
    ]


def _examined(ledger, clock) -> list[doctor.DoctorLine]:
    url = f"sqlite:///{ledger}"
    return list(examine(open_store(url), url, clock))


def test_recordings_that_others_can_read_are_a_warning_with_the_command(call, ledger, tmp_path):
    """The folder of the service's settings is looked at; one that was made by an older version is wide."""
    folder = tmp_path / "arrivals"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (tmp_path / "oncegate.toml").write_text('[record]\nfolder = "arrivals"\n')
    assert "chmod 700 arrivals" in call("doctor").out
    folder.chmod(0o700)
    assert "chmod" not in call("doctor").out
