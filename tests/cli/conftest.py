"""A ledger with an entry in every state, and two ways to call the command line: for real, and quickly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from oncegate import Failed, Gate, open_store
from oncegate.cli.main import main
from oncegate.store import Reservation
from oncegate.testing.waiting import DEADLINE_SECONDS

SCRIPT = Path(sys.executable).parent / "oncegate"
NASTY = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\n\x9b31m\u200b\U0001f600"
DROPPED_VARIABLES = ("ONCEGATE_URL", "NO_COLOR", "TERM", "COLUMNS", "PYTHONUNBUFFERED", "PYTHONPATH")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line of an error; anything beside it fails the test."""
        (line,) = self.err.splitlines()
        assert line.startswith("oncegate: ")
        assert not self.out
        return line


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without anything that steers the command line."""
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED_VARIABLES}
    return kept | more


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Ended]:
    """Calls the installed console script in a folder of its own."""

    def call(*words: str, prefix: tuple[str, ...] = (), **variables: str) -> Ended:
        done = subprocess.run(
            [*prefix, str(SCRIPT), *words],
            cwd=tmp_path,
            env=clean_environment(**variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
        )
        assert "Traceback" not in done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Calls the command line in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in DROPPED_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> Ended:
        capsys.readouterr()
        code = main(list(words))
        shown = capsys.readouterr()
        return Ended(code, shown.out, shown.err)

    return run


@pytest.fixture(scope="session")
def template_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with something of everything, made once."""
    path = tmp_path_factory.mktemp("template") / "oncegate.db"
    _fill_by_gate(path)
    _fill_by_hand(path)
    return path


def _fill_by_gate(path: Path) -> None:
    with Gate(f"sqlite:///{path}") as gate:
        terminal = gate.downstream("terminal", honours_key="7d")
        mail = gate.downstream("mail")

        def claim_slot(number: str, idempotency_key: str) -> dict[str, str]:
            return {"id": f"slot-{number}"}

        def send(event: dict[str, str]) -> str:
            if event["number"] == "doubt":
                raise TimeoutError("no answer")
            return "sent"

        @gate.handler("bookings", key="{number}")
        def book(event, once):
            once.effect(terminal, claim_slot, event["number"])
            once.effect(mail, send, event)
            if event["number"] == "closed":
                raise Failed("the terminal is closed")
            if event["number"] == "again":
                raise ValueError("not now")
            return {"slot": f"slot-{event['number']}", "price": 12345678901234567890}

        @gate.handler("orders", key="{id}", tenant="{customer}")
        def order(event: dict[str, str]) -> dict[str, str]:
            return {"greeting": "こんにちは"}

        for number in ("one", "two", "three"):
            gate.admit_sync("bookings", {"number": number, "secret": "tulip"})
        for number in ("doubt", "closed", "again"):
            with pytest.raises((TimeoutError, Failed, ValueError)):
                gate.admit_sync("bookings", {"number": number})
        gate.admit_sync("bookings", {"number": "one", "secret": "rose"})
        gate.admit_sync("orders", {"id": "o-1", "customer": "acme"})
        gate.admit_sync("orders", {"customer": "acme"})


def _fill_by_hand(path: Path) -> None:
    """Adds what a well-behaved gate would not: a stranded claim, a running one, and hostile text."""
    session = open_store(f"sqlite:///{path}").connect()
    with session.unit():
        session.reserve(
            [reservation(b"\xaa\x01", "stranded", 0), reservation(b"\xaa\x02", NASTY, 3_600_000)]
        )
    session.close()


def reservation(start: bytes, label: str, lease_ms: int) -> Reservation:
    """A claim on a key that begins like this."""
    return Reservation(
        key=start.ljust(24, b"\0"),
        tenant="",
        surface="by hand",
        label=label,
        fingerprint=b"f" * 16,
        body=b'{"note":"\x7f"}',
        received_at_ms=1_780_000_000_000,
        lease_ms=lease_ms,
        attempts_max=8,
        token=1,
    )


@pytest.fixture
def ledger(template_ledger: Path, tmp_path: Path) -> Path:
    """A copy of the template, as ./oncegate.db of the test's folder."""
    return Path(shutil.copy(template_ledger, tmp_path / "oncegate.db"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its bytes, but SQLite's own lock files."""
    lock_files = ("-shm", "-wal")
    return {
        item.name: item.read_bytes()
        for item in sorted(folder.iterdir())
        if item.is_file() and not item.name.endswith(lock_files)
    }
