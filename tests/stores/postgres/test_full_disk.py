"""A server whose disk is full, where tables grow or where its log is: typed errors, no hang (I1-I6)."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from oncegate import Gate
from oncegate.testing.postgres import PostgresServer
from tests.support.postgres_site import Event, PostgresSite, during, events_of

pytestmark = pytest.mark.slow

COUNT = 240


class TinyDisk:
    """A small disk of its own that can be filled and emptied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Takes all the room."""
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(65_536))

    def empty(self) -> None:
        """Gives the room back."""
        self._ballast.unlink()


@pytest.fixture
def disk() -> Iterator[TinyDisk]:
    """Skipped where this user may not mount one."""
    with tempfile.TemporaryDirectory(prefix="oncegate-disk-") as place:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", place], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("a small disk cannot be mounted here: that takes root")
        try:
            Path(place).chmod(0o755)
            folder = Path(place) / "server"
            folder.mkdir(mode=0o700)
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
            yield TinyDisk(folder)
        finally:
            subprocess.run(["umount", place], check=True)


EVENTS: list[Event] = [{**event, "filler": "x" * 8_000} for event in events_of(COUNT)]


def deliver_with_full_disk(
    site: PostgresSite, gate: Gate, disk: TinyDisk, more: Callable[[], None] = lambda: None
) -> set[str]:
    """Delivers some events, fills the disk, delivers the rest; returns what was answered."""
    answered = site.deliver(gate, EVENTS[:10])
    assert len(answered) == 10, site.told
    disk.fill()
    answered |= during(lambda: site.deliver(gate, EVENTS[10:], 4), more, lambda: site.has_sold(15))
    assert len(answered) < COUNT, "a run in which nothing failed shows nothing"
    return answered


def test_no_room_for_tables(disk: TinyDisk) -> None:
    """Whoever cannot be written is told so; with room again every event is done, and done once."""
    with PostgresServer(in_memory=True) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE tiny LOCATION '{disk.folder}'".encode())
            connection.execute("CREATE DATABASE tiny TABLESPACE tiny")
        site = PostgresSite(server.url("tiny"))
        gate = site.gate()
        answered = deliver_with_full_disk(site, gate, disk)
        assert site.told["StoreFull"], site.told
        disk.empty()
        finish(site, gate, answered)


def test_no_room_for_the_log(disk: TinyDisk) -> None:
    """The server itself goes down over its log; once there is room and it is back, all is finished."""
    settings = {"max_wal_size": "32MB", "min_wal_size": "32MB"}
    with PostgresServer(settings, in_memory=True) as server:
        server.stop(signal.SIGINT)
        move_log(server, disk)
        server.start()
        site = PostgresSite(server.new_database())
        gate = site.gate()
        answered = deliver_with_full_disk(site, gate, disk, lambda: use_up_log(site))
        assert site.told["StoreUnavailable"] + site.told["StoreUnknown"] + site.told["StoreFull"], site.told
        assert "No space left on device" in server.log()
        server.stop(signal.SIGQUIT)
        disk.empty()
        server.start()
        finish(site, gate, answered)


def use_up_log(site: PostgresSite) -> None:
    """Fills the files of the log that were there already."""
    with contextlib.suppress(psycopg.Error):
        for _ in range(100):
            site.rows("SELECT pg_switch_wal(), pg_logical_emit_message(true, 'used', 'up')")


def move_log(server: PostgresServer, disk: TinyDisk) -> None:
    log, there = Path(server.data) / "pg_wal", disk.folder / "wal"
    subprocess.run(["mv", str(log), str(there)], check=True)
    log.symlink_to(there)


def finish(site: PostgresSite, gate: Gate, answered: set[str]) -> None:
    site.recover(gate, EVENTS, answered)
    site.check(EVENTS)
    site.close()
