"""What an operator needs at night: lists by time, fields and resources, a tail, bars, `oncegate dev`."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oncegate import Failed, Gate, open_store
from oncegate.cli.confirming import ProgressBar
from oncegate.cli.entries_tail import Tail, follow
from oncegate.cli.main import main
from oncegate.store import EntryFilter
from oncegate.testing.clock import ManualClock
from tests.cli.conftest import SCRIPT, clean_environment

BASE_MS = 1_790_000_000_000


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with an event an hour for ten hours; the third fails, each names a resource."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONCEGATE_URL", raising=False)
    clock = ManualClock(wall_ms=BASE_MS)
    with Gate("sqlite:///oncegate.db", clock=clock) as gate:

        @gate.handler("orders", key="{id}")
        def order(event: Any, once: Any) -> Any:
            if event["id"] == "o-3":
                raise Failed("closed")
            once.commit(resource=f"res-{event['id']}")
            return {"slot": f"slot-{event['id']}"}

        for number in range(10):
            event = {"id": f"o-{number}", "amount": number * 100, "card": {"kind": "visa"}}
            with suppress(Failed):
                gate.admit_sync("orders", event)
            clock.advance(3600)
    return tmp_path


def labels(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main([*words, "--json"]) == 0
    return [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]


def moment(hours: float) -> str:
    from oncegate.cli.output import utc

    return utc(BASE_MS + int(hours * 3_600_000))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--since", moment(7)), ["o-9", "o-8", "o-7"]),
        (("--until", moment(2)), ["o-1", "o-0"]),
        (("--since", moment(4), "--until", moment(6)), ["o-5", "o-4"]),
        (("--since", moment(2), "--until", moment(5), "--state", "failed"), ["o-3"]),
        (("--field", "amount=400"), ["o-4"]),
        (("--field", "card.kind=visa", "--field", "id=o-2"), ["o-2"]),
        (("--field", "amount=41"), []),
        (("--resource", "res-o-6"), ["o-6"]),
    ],
)
def test_entries_are_listed_by_time_field_and_resource(
    nights: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: list[str]
) -> None:
    assert labels(capsys, "entries", "list", *words) == expected


def test_the_next_page_keeps_the_filters(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["entries", "list", "--since", moment(4), "--field", "card.kind=visa", "--limit", "2"])
    told = capsys.readouterr().err
    assert f"--since {moment(4)}" in told
    assert "--field card.kind=visa" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--since", "yesterday"), "is no moment; write how long ago"),
        (("--since", "1h", "--until", "2h"), "--until is before --since"),
        (("--field", "amount"), "is not PATH=VALUE"),
    ],
)
def test_a_mistake_is_one_line_with_the_next_step(
    nights: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert main(["entries", "list", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


@pytest.mark.parametrize(
    "command",
    [
        ("held", "list"), ("quarantine", "list"), ("journal", "--all"), ("duplicates", "list"),
        ("resources", "list"), ("dead-letters", "list"), ("dead-letters", "replays"),
    ],
)  # fmt: skip
def test_every_list_takes_a_time(
    nights: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    assert main([*command, "--since", "2h", "--until", "5m"]) == 0
    assert main([*command, "--since", "never"]) == 2


def test_the_journal_is_cut_by_time(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "--all", "--json", "--since", moment(4), "--until", moment(6)]) == 0
    found = [json.loads(line)["at"] for line in capsys.readouterr().out.splitlines()]
    assert found
    assert all(moment(4) <= at < moment(6) for at in found)


class Acting(ManualClock):
    """Between two looks something happens."""

    def __init__(self, *acts: Any) -> None:
        super().__init__()
        self._acts = list(acts)

    def pause(self, seconds: float) -> None:
        if not self._acts:
            raise KeyboardInterrupt
        self._acts.pop(0)()


def test_a_tail_shows_what_arrives_and_what_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/tail.db"
    with Gate(url) as gate:

        @gate.handler("orders", key="{id}", approve_first=True)
        def order(event: Any) -> None: ...

        gate.admit_sync("orders", {"id": "before"})
        clock = Acting(
            lambda: gate.admit_sync("orders", {"id": "new"}),
            lambda: gate.people.reject(2, actor="ann", reason="no"),
            lambda: None,
        )
        arguments = argparse.Namespace(every="1s", within=None, limit=None, json=True)
        with pytest.raises(KeyboardInterrupt):
            follow(open_store(url), Tail(EntryFilter()), arguments, clock)
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["label"], one["state"]) for one in shown] == [("new", "held"), ("new", "failed")]


def test_a_tail_ends_by_itself(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["entries", "tail", "--for", "1ms"]) == 0
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_bar_is_drawn_on_terminals_only(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    bar = ProgressBar(200, "entries")
    for done in (50, 50, 100, 200):
        bar.tell(done)
    if not is_terminal:
        assert stream.getvalue() == ""
        return
    drawn = [line.partition("]")[2].split() for line in stream.getvalue().split("\r\x1b[2K")]
    assert drawn == [[], ["25%", "50", "of", "200", "entries"], ["50%", "100", "of", "200", "entries"], []]


@pytest.mark.slow
def test_dev_is_useful_in_one_command(tmp_path: Path) -> None:
    """Service, page, samples and a curl line; Ctrl-C leaves nothing behind."""
    environment = clean_environment(TMPDIR=str(tmp_path))
    process = subprocess.Popen(
        [str(SCRIPT), "dev", "--port", "0"], cwd=tmp_path, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stderr:
            lines.append(line.rstrip())
            if line.startswith("Ctrl-C"):
                break
        address = next(line.split()[1] for line in lines if line.startswith("service"))
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{address}/ui/", timeout=10) as page:
            assert b"oncegate" in page.read()
        assert [line[:3] for line in lines if line[:3].isdigit()] == ["200", "200", "422", "422", "202"]
        assert any(line.startswith("  curl -s http://127.0.0.1:") for line in lines)
    finally:
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []
