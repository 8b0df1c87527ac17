"""The wheel holds what users run: no lab, and no script of a competitor."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import ROOT
from lab.bench.peers.roster import PEERS
from lab.wheel import lines_by_package, wheel_files

# 79,000 before sources, further ledgers, audit, journal, roll-back and Django; the aim was 59,000.
LINES_MAX = 118_000
PEER_MODULES = {peer.name.replace("-", "_") for peer in PEERS}


def _imported(path: Path) -> Iterator[str]:
    """The top-level modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


@pytest.mark.slow
def test_the_wheel_holds_neither_the_lab_nor_scripts_of_peers() -> None:
    """A user's machine gets nothing that imports the lab or a competitor."""
    files = list(wheel_files())
    found = {
        str(path): set(_imported(path)) & {"lab", *PEER_MODULES} for path in files if path.suffix == ".py"
    }

    assert len(found) > 400
    assert {path: names for path, names in found.items() if names} == {}
    assert [path for path in files if path.name.endswith("_peer.py")] == []
    assert [path for path in files if ROOT / "src" / "oncegate" not in path.parents] == []


def test_the_peers_of_the_lab_would_be_noticed() -> None:
    """The same look at a peer's script finds the competitor in it."""
    script = ROOT / "lab" / "bench" / "peers" / "scripts" / "procrastinate_peer.py"

    assert "procrastinate" in set(_imported(script)) & PEER_MODULES


def test_the_wheel_does_not_grow(record_property: Callable[[str, object], None]) -> None:
    """The count is in the report of the tests (`--junit-xml`), and `python -m lab wheel` prints it."""
    lines = lines_by_package()
    record_property("wheel_lines", lines.total())

    assert lines["gate"] > 1_000
    assert lines.total() <= LINES_MAX, lines.most_common(10)
