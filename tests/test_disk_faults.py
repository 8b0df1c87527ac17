"""Disks that fail, one system call at a time: EIO and no space at every flush and write, and death there.

strace makes the Nth call of a kind fail inside a worker's process. Whatever the worker was told, and
whatever the file holds afterwards, the events are finished and every effect happened once (I1-I5).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from oncegate import Gate
from oncegate.clock import SystemClock
from oncegate.errors import OutcomeUnknown
from oncegate.model.states import State
from oncegate.store import EntryFilter, LogKind
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.support import disk_fault_worker

pytestmark = pytest.mark.slow

EVENTS = ("honoured/a", "unrepeatable/b", "honoured/c")
WORKER = disk_fault_worker.__file__


@pytest.fixture(scope="session")
def strace() -> str:
    """The tool that makes system calls fail; skipped where it is missing or may not trace."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed: no system call can be made to fail")
    tried = subprocess.run([found, "-f", "-o", os.devnull, "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("strace may not trace processes here")
    return found


class LaterClock(SystemClock):
    """The machine's clock, set on by more than any lease."""

    def ticks_ms(self) -> int:
        return super().ticks_ms() + 600_000


class Run:
    """One worker under one fault, and what it left behind."""

    def __init__(self, folder: Path, template: Path) -> None:
        folder.mkdir()
        self.ledger, self.calls, self.told = folder / "ledger.db", folder / "calls", folder / "told"
        self.trace = folder / "trace"
        shutil.copy(template, self.ledger)

    def work(self, strace: str, injection: str, *events: str) -> bool:
        """Lets the worker run and tells whether the fault was injected."""
        kind, is_death = injection.partition(":")[0], "signal" in injection
        speed = [] if is_death else ["--seccomp-bpf"]  # quicker, but it lets signals through unsent
        tracing = ["-f", "-qq", *speed, "-o", str(self.trace), "-e", f"trace={kind}"]
        files = [str(file) for file in (self.ledger, self.calls, self.told)]
        ended = subprocess.run(
            [strace, *tracing, "-e", f"inject={injection}", sys.executable, WORKER, *files, *events],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        killed = ended.returncode in (-9, 128 + 9)
        assert killed or ended.returncode == 0, ended.stderr
        return (is_death and killed) or "(INJECTED)" in self.trace.read_text()

    def answers(self) -> dict[str, str]:
        lines = self.told.read_text().splitlines() if self.told.exists() else []
        return dict(line.split(" ") for line in lines)

    def states(self) -> dict[str, State]:
        with SqliteStore(self.ledger).look() as session:
            entries = session.entries(EntryFilter(), None, 100)
        return {f"{entry.surface}/{entry.label}": entry.state for entry in entries}

    def bookings(self) -> Counter[str]:
        with contextlib.closing(sqlite3.connect(self.ledger)) as connection:
            return Counter(ref for (ref,) in connection.execute("SELECT ref FROM booking"))

    def calls_by_key(self) -> Counter[str]:
        """How often the outside world was called with each key."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return Counter(lines)

    def finish(self) -> None:
        """What an at-least-once sender does later, when the disk is well again."""
        gate = Gate(f"sqlite:///{self.ledger}", clock=LaterClock())
        disk_fault_worker.register(gate, str(self.calls))
        with contextlib.closing(gate):
            for event in EVENTS:
                surface, _, name = event.partition("/")
                with contextlib.suppress(OutcomeUnknown):
                    gate.admit_sync(surface, {"id": name})

    def check(self, case: str) -> None:
        """Nothing that was promised is missing, nothing is there twice."""
        answers, before = self.answers(), self.states()
        for event, answer in answers.items():
            if answer == "run":
                assert before.get(event) is State.COMMITTED, (case, event, "was told, but is not there")
        self.finish()
        states, bookings, calls = self.states(), self.bookings(), self.calls_by_key()
        assert states["honoured/a"] is states["honoured/c"] is State.COMMITTED, (case, states)
        assert states["unrepeatable/b"] in (State.COMMITTED, State.UNKNOWN), (case, states)
        unknown = states["unrepeatable/b"] is State.UNKNOWN
        assert bookings == Counter({"a": 1, "c": 1} if unknown else {"a": 1, "b": 1, "c": 1}), case
        assert len(calls) == 3 - (unknown and len(calls) == 2), (case, calls)
        with SqliteStore(self.ledger).look() as session:
            for entry in session.entries(EntryFilter(), None, 100):
                found = session.detail(entry.entry_id)
                assert found is not None
                kinds = Counter(record.kind for record in found.records)
                assert kinds[LogKind.COMMITTED] == (entry.state is State.COMMITTED), (case, found)
                key = f"{entry.key.hex()}:claim"
                if entry.surface == "unrepeatable":
                    assert calls[key] <= 1, (case, calls)
        with contextlib.closing(sqlite3.connect(self.ledger)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger that is already made, so that every fault hits the events and not the making."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    SqliteStore(path).connect().close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE booking (ref TEXT)")
        connection.commit()
    return path


@pytest.mark.parametrize("share", [2, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
@pytest.mark.parametrize(
    ("injection", "every"),
    [
        pytest.param("fdatasync:error=EIO:when={}", 1, id="one flush fails"),
        pytest.param("fdatasync:error=EIO:when={}+", 2, id="flushes fail from here on"),
        pytest.param("fdatasync:signal=KILL:when={}", 2, id="killed at a flush"),
        pytest.param("pwrite64:error=ENOSPC:when={}", 7, id="one write finds no space"),
        pytest.param("pwrite64:error=EIO:when={}+", 7, id="writes fail from here on"),
        pytest.param("pwrite64:signal=KILL:when={}", 11, id="killed at a write"),
    ],
)
def test_fault_at_every_call_loses_and_doubles_nothing(
    strace: str, template: Path, tmp_path: Path, injection: str, *, every: int, share: int
) -> None:
    """The fault moves from call to call, in CI every other, until the worker no longer comes so far."""
    hit, number = 0, 1
    every *= share
    while True:
        run = Run(tmp_path / str(number), template)
        if not run.work(strace, injection.format(number), *EVENTS):
            break
        run.check(injection.format(number))
        hit, number = hit + 1, number + every

    assert hit >= 3, "hardly anything was made to fail"


def test_what_was_told_undone_does_not_appear_after_a_crash(
    strace: str, template: Path, tmp_path: Path
) -> None:
    """A commit that failed to reach the disk, and was told as not done, stays not done for ever.

    Somebody else has the ledger open and everybody dies: the next to open it recovers what the write-ahead
    log holds, and must not find there what was said not to have happened.
    """
    told, left = Counter[str](), list[tuple[bool, bool]]()
    for number in range(1, 20):
        run = Run(tmp_path / str(number), template)
        if not run.work(strace, f"fdatasync:error=EIO:when={number}", "honoured/a", "die"):
            break
        answer = run.answers()["honoured/a"]
        told[answer] += 1
        state, was_called = run.states().get("honoured/a"), bool(run.calls_by_key())
        if answer == "run":
            assert state is State.COMMITTED, (number, state)
        elif answer == "StoreUnavailable":
            assert state in (None, State.IN_FLIGHT), (number, state)
            assert not run.bookings(), number
            left.append((state is not None, was_called))

    assert told["run"] + told["StoreUnavailable"] >= 2, told
    # The reservation, the record of the call to come, and the end were each undone once, in this order.
    assert left == [(False, False), (True, False), (True, True)]
