"""The service as its own process: SIGTERM finishes what is under way, and what was answered stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.site import SECRET, Answer, Site, TeamHandler

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
        process = subprocess.Popen(
            [sys.executable, "-m", "oncegate", "serve"],
            cwd=tmp_path,
            env={**os.environ, "HOOKS": SECRET},
            stderr=subprocess.PIPE,
            text=True,
        )
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


def _hook(port: int) -> Answer:
    caller = Site.__new__(Site)
    caller.port = port
    return caller.hook({"id": "n-1"})
