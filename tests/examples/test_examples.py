"""Every example runs as its README says, in a copy of its folder."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.guides import ROOT, Reader, free_port
from tests.support.wheel import wheel_environment

EXAMPLES = ROOT / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_as_its_readme_says(name: str, tmp_path: Path) -> None:
    """Every command with the output that it shows, on other ports, from the wheel."""
    if name == "node_handler" and shutil.which("node") is None:
        pytest.skip("node is not installed on this machine")
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__", "*.db*"))
    readme = (folder / "README.md").read_text("utf-8")
    ports = {port: str(free_port()) for port in set(re.findall(r"\b(?:8000|8700|9000)\b", readme))}
    settings = folder / "oncegate.toml"
    if settings.exists():
        settings.write_text(settings.read_text("utf-8").replace("9000", ports["9000"]), "utf-8")
    Reader(folder / "README.md", folder, ports).follow(wheel=wheel_environment())


def test_every_example_is_listed() -> None:
    """On the page of examples, each with its folder."""
    page = (ROOT / "docs" / "examples.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `examples/(\w+)` \|", page, re.MULTILINE)) == NAMES
    assert len(NAMES) == 6
