"""Takes protecting lines out of the safety core, one at a time, and runs the tests near by: each must fail.

    python proof/mutate.py                 every mutant of every file of the core
    python proof/mutate.py settling.py     only those of one file
    python proof/mutate.py --list          only says what would be tried

A mutant makes one `if` always or never true, leaves out one call that is made for what it does, or drops
one condition of a WHERE clause. A mutant that no test notices survives; it is listed, with its line.
`ALIKE` names those that change nothing anybody could notice, each with the reason.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/oncegate")
SIMULATOR = "tests/simulation/test_near.py"
_GATE = "tests/gate/test_"
CORE = {
    "model/states.py": ["tests/model/test_states.py", SIMULATOR, "tests/stores/test_conformance_sqlite.py"],
    "model/downstream.py": ["tests/model/test_downstream.py", SIMULATOR],
    "gate/effects.py": [
        SIMULATOR,
        *(
            f"{_GATE}{name}.py"
            for name in ("effects", "steps", "recovery", "fences", "once_functions", "outcomes")
        ),
        "tests/upkeep",
    ],
    "gate/settling.py": [
        SIMULATOR,
        *(
            f"{_GATE}{name}.py"
            for name in ("outcomes", "commit", "fences", "recovery", "steps", "join", "effects")
        ),
    ],
    "gate/claim.py": [
        SIMULATOR,
        *(f"{_GATE}{name}.py" for name in ("fences", "steps", "effects", "commit", "join", "recovery")),
    ],
    "gate/flows.py": [
        SIMULATOR,
        *(f"{_GATE}{name}.py" for name in ("arrivals", "busy", "same_database", "cancelling", "commit")),
    ],
    "operations.py": [SIMULATOR, "tests/test_doubtful_commits.py"],
    "stores/sqlite/claims.py": [
        "tests/stores/test_conformance_sqlite.py",
        "tests/gate/test_arrivals.py",
        "tests/test_zombies.py",
    ],
}
SECONDS_MAX = 240

# Mutants that no test could notice, as (file, line's text, change): reason.
_SAME_UNIT = "the row was read in the same transaction, which began as the only writer"
ALIKE: dict[tuple[str, str, str], str] = {
    ("stores/sqlite/claims.py", '" WHERE id = ? AND fence = ?"', "without AND fence = ?"): _SAME_UNIT,
    (
        "gate/effects.py",
        "check_step_name(call.step_name)",
        "left out",
    ): "the step's key checks the name again",
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    line: int
    text: str
    change: str
    source: str


def mutants(file: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    source = (ROOT / PACKAGE / file).read_text("utf-8")
    yield from _syntax_mutants(file, source)
    yield from _clause_mutants(file, source)


def _syntax_mutants(file: str, source: str) -> Iterator[Mutant]:
    lines = source.splitlines()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and not _is_for_types(node):
            for value in ("True", "False"):
                changed = _replaced(source, node.test, value)
                yield Mutant(file, node.lineno, lines[node.lineno - 1].strip(), f"if {value}", changed)
        elif _does_something(node, lines):
            yield Mutant(
                file,
                node.lineno,
                lines[node.lineno - 1].strip(),
                "left out",
                _replaced(source, node, "pass"),
            )


def _does_something(node: ast.AST, lines: list[str]) -> TypeGuard[ast.Expr]:
    """A call that is made for what it does; a crash point does nothing in production."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call | ast.YieldFrom):
        return False
    return "crashpoints.hit(" not in lines[node.lineno - 1]


def _is_for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _replaced(source: str, node: ast.expr | ast.stmt, text: str) -> str:
    lines = source.splitlines(keepends=True)
    assert node.end_lineno is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    if isinstance(node, ast.Expr) and "yield" in "".join(lines[first : last + 1]):
        text = "if False: yield"  # a flow stays one
    return "".join([*lines[:first], head + text + tail, *lines[last + 1 :]])


def _clause_mutants(file: str, source: str) -> Iterator[Mutant]:
    """Drops conditions of WHERE clauses, one at a time."""
    for found in re.finditer(r" AND \w+ (?:=|<|>|<=) (?:\?|\d)", source):
        line = source.count("\n", 0, found.start()) + 1
        # The parameter stays in its place: what is compared is only never unequal.
        clause = found.group()
        kept = " AND ? IS NOT NULL" if clause.endswith("?") else ""
        changed = source[: found.start()] + kept + source[found.end() :]
        yield Mutant(file, line, source.splitlines()[line - 1].strip(), f"without{clause}", changed)


def is_noticed(mutant: Mutant, tests: list[str], work: Path) -> bool:
    """Whether a test fails with the mutant in place."""
    place = work / PACKAGE / mutant.file
    before = place.read_text("utf-8")
    place.write_text(mutant.source, "utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        ended = subprocess.run(
            command, cwd=work, env={**os.environ, "PYTHONPATH": str(work / "src")}, timeout=SECONDS_MAX,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return ended.returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        place.write_text(before, "utf-8")


def main() -> int:
    """Tries every mutant and tells which survived."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="only files whose name ends so")
    parser.add_argument("--change", default="", help="only changes that begin so: if, left, without")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument("--least", type=float, default=90.0, help="the score that is wanted (default: 90)")
    arguments = parser.parse_args()
    chosen = [f for f in CORE if not arguments.files or f.endswith(tuple(arguments.files))]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "tree"
        shutil.copytree(
            ROOT, work, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache")
        )
        score = _try_all(chosen, work, change=arguments.change, only_list=arguments.list)
    return 0 if arguments.list or score >= arguments.least else 1


def _try_all(chosen: list[str], work: Path, *, change: str, only_list: bool) -> float:
    noticed = tried = 0
    for file in chosen:
        for mutant in mutants(file):
            place = f"{file}:{mutant.line} {mutant.change}: {mutant.text}"
            is_alike = (file, mutant.text, mutant.change) in ALIKE
            if is_alike or not mutant.change.startswith(change):
                continue
            if only_list:
                print(place)
                continue
            tried += 1
            if is_noticed(mutant, CORE[file], work):
                noticed += 1
            else:
                print(f"survived  {place}", flush=True)
        if not only_list:
            print(f"{file}: {noticed} of {tried} so far", flush=True)
    score = 100 * noticed / tried if tried else 0.0
    if not only_list:
        print(f"{noticed} of {tried} mutants were noticed: {score:.1f} %")
    return score


if __name__ == "__main__":
    sys.exit(main())
