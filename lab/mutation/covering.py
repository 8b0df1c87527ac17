"""Which test runs which lines of the safety core: found out once. Only these can notice a mutant.

The tests run in forked processes under a tracer that looks at files of the core only. A test that fails
there, without any mutant, is left out: it would notice everything.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from lab.mutation.mutants import CORE, LONG, PACKAGE, TESTS, Mutant

IMPORTED_TESTS = 20


@dataclass(frozen=True)
class Covering:
    """For each test that passes: how long it takes, and which lines of the core it runs, by file."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, frozenset[int]]]

    def of(self, mutant: Mutant, tree: Path) -> list[str]:
        """The tests that run its line and may go another way with it, likeliest and quickest first."""
        wanted, branch = _lines_of(mutant, tree), _branch_of(mutant, tree)
        ran = {test: files.get(mutant.file, frozenset()) for test, files in self.lines.items()}
        found = [
            test
            for test, files in self.lines.items()
            if any(files.get(file, frozenset()) & lines for file, lines in wanted.items())
        ]
        if not found:  # it runs while the package is imported: any test may notice
            return sorted(self.lines, key=self.seconds.__getitem__)[:IMPORTED_TESTS]
        if mutant.change == "if False":  # only who went in can be kept out
            return sorted((test for test in found if branch in ran[test]), key=self.seconds.__getitem__)
        # Who never went in by itself surely goes another way if the condition is always true.
        return sorted(found, key=lambda test: (branch in ran[test], self.seconds[test]))

    def within(self, tests: list[str], seconds: float) -> list[str]:
        """As many of the tests as took no longer than that together."""
        total = list(accumulate(self.seconds[test] for test in tests))
        return tests[: bisect_right(total, seconds)]


def _lines_of(mutant: Mutant, tree: Path) -> dict[str, set[int]]:
    """The line itself; for a statement kept as a constant, the lines of the core that use its name."""
    for node in _parsed(tree, mutant.file).body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and node.lineno <= mutant.line <= (node.end_lineno or 0):
            return _uses(tree, mutant.file, target.id)
    return {mutant.file: {mutant.line}}


def _branch_of(mutant: Mutant, tree: Path) -> int | None:
    """The first line below an `if`, where the mutant is about one."""
    for node in ast.walk(_parsed(tree, mutant.file)):
        if isinstance(node, ast.If) and node.lineno == mutant.line:
            return node.body[0].lineno
    return None


def _uses(tree: Path, file: str, name: str) -> dict[str, set[int]]:
    """Where functions name a constant, also by way of other constants that are made of it.

    Other files of the same folder are looked at for names without an underscore.
    """
    names, found = {name}, {}
    while True:
        known = len(names)
        for other in (each for each in CORE if Path(each).parent == Path(file).parent):
            seen = names if other == file else {each for each in names if not each.startswith("_")}
            found[other] = _uses_in(_parsed(tree, other), seen, names)
        if len(names) == known:
            return found


def _uses_in(parsed: ast.Module, seen: set[str], names: set[str]) -> set[int]:
    """The lines of functions that name one of them; constants that do are added to the names."""
    lines: set[int] = set()
    for node in parsed.body:
        named = {
            each.lineno
            for each in ast.walk(node)
            if (isinstance(each, ast.Name) and each.id in seen)
            or (isinstance(each, ast.Attribute) and each.attr in seen)
        }
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if not isinstance(target, ast.Name):
            lines |= named
        elif named:
            names.add(target.id)
    return lines


@cache
def _parsed(tree: Path, file: str) -> ast.Module:
    return ast.parse((tree / PACKAGE / file).read_text("utf-8"))


def place_of(work: Path, kept: Path) -> Path:
    """Where the coverage of this state of core and tests is kept."""
    return kept / f"covering-{_state_of(work)}.json"


def joined(parts: list[Path]) -> str:
    """The parts of a coverage as one."""
    told = [json.loads(place.read_text("utf-8")) for place in parts]
    return json.dumps(
        {name: {k: v for one in told for k, v in one[name].items()} for name in ("seconds", "lines")}
    )


def load(place: Path) -> Covering:
    """Reads what was kept."""
    told = json.loads(place.read_text("utf-8"))
    lines = {
        test: {file: frozenset(run) for file, run in files.items()} for test, files in told["lines"].items()
    }
    return Covering(told["seconds"], lines)


def _state_of(work: Path) -> str:
    """A digest of the core and of its tests."""
    digest = hashlib.sha256(repr((CORE, TESTS, LONG)).encode())
    folders = (work / "tests", work / PACKAGE / "testing" / "conformance")
    tests = sorted(place for folder in folders for place in folder.rglob("*.py"))
    for place in (*(work / PACKAGE / file for file in CORE), *tests):
        digest.update(place.read_bytes())
    return digest.hexdigest()[:12]


class Tracer:
    """A pytest plugin: notes the lines of the core that each test runs, in all threads."""

    def __init__(self, work: Path, place: Path) -> None:
        self._files = {str(work / PACKAGE / file): file for file in CORE}
        self._place = place
        self._here: dict[str, set[int]] = {}
        self._lines: dict[str, dict[str, list[int]]] = {}
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._here = {}
        began = time.perf_counter()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self._seconds[item.nodeid] = time.perf_counter() - began
            self._lines[item.nodeid] = {file: sorted(lines) for file, lines in self._here.items()}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        lines = {test: files for test, files in self._lines.items() if files and test not in self._failed}
        self._place.write_text(json.dumps({"seconds": self._seconds, "lines": lines}), "utf-8")

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = self._files.get(frame.f_code.co_filename)
        if file is None:
            return None
        lines = self._here.setdefault(file, set())
        lines.add(frame.f_lineno)

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            lines.add(frame.f_lineno)
            return step

        return step
