"""A folder of code to audit, and the command line on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oncegate.cli.main import main

FAULTY = """\
import requests
from celery import shared_task


@shared_task(acks_late=True)
def charge(order):
    requests.post("https://bank.example", json=order)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with one faulty consumer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.py").write_text(FAULTY, "utf-8")
    return tmp_path


@pytest.fixture
def run(project: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls `oncegate audit`; returns its exit code, output and talk."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["audit", *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call
