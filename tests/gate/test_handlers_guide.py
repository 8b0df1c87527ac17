"""docs/handlers.md: its program runs, and it has every option with the default that is meant."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from oncegate import Gate

GUIDE = (Path(__file__).parents[2] / "docs" / "handlers.md").read_text("utf-8")
WORDS = {"None": "none", "False": "no", "()": "()"}
TOLD_OTHERWISE = {
    "retention_floor": "14d",
    "on_conflict": "quarantine",
    "returns": "annotation",
    "lane": "the key",
}


def test_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there."""
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "handlers.md", "exec"), {"__name__": "guide"})
    assert (tmp_path / "shop.db").exists()


def test_every_option_is_told_with_its_default() -> None:
    """An option that nobody can find out about is none."""
    told = dict(
        re.findall(
            r"^\| `(\w+)` \|\s*([^|]*?)\s*\|",
            GUIDE.partition("## What `gate.handler` takes")[2],
            re.MULTILINE,
        )
    )
    parameters = inspect.signature(Gate.handler).parameters
    options = {name: one.default for name, one in parameters.items() if name not in ("self", "surface")}
    assert sorted(told) == sorted(options)
    for name, default in options.items():
        shown = "" if default is inspect.Parameter.empty else WORDS.get(str(default), str(default))
        assert told[name] == TOLD_OTHERWISE.get(name, shown), name
