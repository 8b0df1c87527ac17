"""The service as its own process: SIGTERM finishes what is under way, and what was answered stays."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oncegate.clock import SystemClock
from oncegate.service.stopping import NOT_FINISHED, RESERVE_SECONDS_MAX, StopTimes, end_within
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.process import served
from tests.service.site import SECRET, Answer, Site, TeamHandler

pytestmark = pytest.mark.slow

CONFIG = """
url = "sqlite:///ledger.db"
[server]
port = 0
[network]
allow_http = true
allow_loopback = true
[downstreams.team]
url = "{url}"
[surfaces.hooks]
key = "{{id}}"
signature = "bearer"
secrets = ["$HOOKS"]
tenant = "acme"
forward = "team"
"""


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_is_under_way(tmp_path: Path, signal_number: signal.Signals) -> None:
    """The request gets its answer, the process ends well, and the record is there."""
    team = TeamHandler()
    with team.serving() as url:
        (tmp_path / "oncegate.toml").write_text(CONFIG.format(url=url), "utf-8")
        process = _serve_in(tmp_path)
        assert process.stderr is not None
        try:
            told = [process.stderr.readline()]
            port = int(told[0].rsplit(":", 1)[1])
            team.hold.clear()
            answers: list[Answer] = []
            thread = threading.Thread(target=lambda: answers.append(_hook(port)))
            thread.start()
            wait_until(lambda: team.got, what="the handler to be called")
            process.send_signal(signal_number)
            team.hold.set()
            thread.join(DEADLINE_SECONDS)
            told.append(process.communicate(timeout=DEADLINE_SECONDS)[1])
        finally:
            process.kill()
            process.wait()

    assert [answer.status for answer in answers] == [200]
    assert process.returncode == 0, told
    assert SECRET not in "".join(told)


@pytest.mark.parametrize("mode", ["inline", "accept"])
def test_ending_takes_no_longer_than_it_may(tmp_path: Path, mode: str) -> None:
    """A handler that does not answer for ten minutes holds nobody up, whoever called it."""
    team = TeamHandler()
    team.hold.clear()
    with team.serving() as url:
        config = CONFIG.format(url=url).replace("port = 0", 'port = 0\ndrain_within = "500ms"')
        config = config.replace(f'url = "{url}"', f'url = "{url}"\ntimeout = "10m"')
        (tmp_path / "oncegate.toml").write_text(f'{config}mode = "{mode}"\n', "utf-8")
        process = _serve_in(tmp_path)
        assert process.stderr is not None
        try:
            port = int(process.stderr.readline().rsplit(":", 1)[1])
            threading.Thread(target=lambda: _ignored(port), daemon=True).start()
            wait_until(lambda: team.got, what="the handler to be called")
            clock = SystemClock()
            asked_at = clock.ticks_ms()
            process.send_signal(signal.SIGTERM)
            told = process.communicate(timeout=DEADLINE_SECONDS)[1]
            took_ms = clock.ticks_ms() - asked_at
        finally:
            team.hold.set()
            process.kill()
            process.wait()

    assert took_ms < 25_000, told  # and not the thirty seconds of a delivery, on whatever machine
    assert process.returncode in (0, NOT_FINISHED), told


def _ignored(port: int) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        _hook(port)


def test_what_hangs_is_ended_all_the_same() -> None:
    left: list[int] = []
    end_within(0.01, left.append)
    wait_until(lambda: left, what="the end")

    assert left == [NOT_FINISHED]


def test_the_times_of_ending_are_parts_of_the_whole() -> None:
    for whole in (0.1, 2.0, 20.0, 300.0):
        times = StopTimes(whole)
        assert times.work + times.reserve == pytest.approx(whole)
        assert 0 < times.reserve < times.work
        assert times.reserve <= RESERVE_SECONDS_MAX


def _serve_in(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "oncegate", "serve"],
        cwd=folder,
        env={**os.environ, "HOOKS": SECRET},
        stderr=subprocess.PIPE,
        text=True,
    )


def _hook(port: int) -> Answer:
    caller = Site.__new__(Site)
    caller.port = port
    return caller.hook({"id": "n-1"})


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_changed_key_template_ends_the_start_with_the_command_that_accepts_it(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Given a surface that the ledger knows: exit code 2 before any event is taken (A2)."""
    url = "sqlite:///ledger.db" if kind == "sqlite" else request.getfixturevalue("ledger_url")
    with served(tmp_path, url=url) as site:  # it registers its surface at the start, without any event
        assert site.call("GET", "/livez").status == 200
    settings = tmp_path / "oncegate.toml"
    settings.write_text(settings.read_text("utf-8").replace('"{id}"', '"{id:str}"'), "utf-8")

    refused = subprocess.run(
        [sys.executable, "-m", "oncegate", "serve"],
        cwd=tmp_path,
        env={**os.environ, "HOOKS": SECRET},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )

    assert (refused.returncode, "startup complete" in refused.stderr) == (2, False)
    assert "oncegate surfaces rekey hooks --from '{id}' --to '{id:str}'" in refused.stderr
