"""The lab's command line, called in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.__main__ import main
from tests.cli.conftest import Ended


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Calls `python -m lab` in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Ended:
        capsys.readouterr()
        code = main(list(words))
        shown = capsys.readouterr()
        return Ended(code, shown.out, shown.err)

    return run
