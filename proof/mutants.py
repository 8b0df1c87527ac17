"""The mutants of the safety core: what is mutated, how, which tests are near by, and which change nothing.

A mutant makes one `if` always or never true, leaves out one call that is made for what it does, or drops
one condition of a WHERE clause. `proof/mutate.py` tries them.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

PACKAGE = Path("src/oncegate")
_NEAR = "tests/simulation/test_near.py::test_two_hundred_schedules_keep_every_promise"
SIMULATOR = f"{_NEAR}[1]"
SQLITE_SUITE = "tests/stores/test_conformance_sqlite.py"


def _gate(*names: str) -> list[str]:
    return [f"tests/gate/test_{name}.py" for name in names]


# The safety core, each file with the tests that know most about it; the first is tried alone.
CORE: dict[str, list[str]] = {
    "model/states.py": ["tests/model/test_states.py", *_gate("protecting_lines"), SIMULATOR, SQLITE_SUITE],
    "model/downstream.py": ["tests/model/test_downstream.py", SIMULATOR],
    "gate/claim.py": [
        *_gate("fences", "protecting_lines", "steps", "effects", "commit", "join", "recovery"),
        SIMULATOR,
    ],
    "gate/settling.py": [
        *_gate("protecting_lines", "outcomes", "commit", "fences", "recovery", "steps", "join", "effects"),
        SIMULATOR,
        *_gate("join_sqlalchemy_sqlite", "join_postgres"),
    ],
    "gate/flows.py": [
        *_gate("arrivals", "busy", "same_database", "cancelling", "commit", "quarantine", "sightings"),
        SIMULATOR,
    ],
    "operations.py": ["tests/test_doubtful_commits.py", SIMULATOR, *_gate("sightings")],
    "stores/sqlite/claims.py": [SQLITE_SUITE, *_gate("arrivals", "recovery"), "tests/test_zombies.py"],
    "stores/sqlite/sweeps.py": [SQLITE_SUITE],
    "gate/effects.py": [
        *_gate("steps", "effects", "protecting_lines", "recovery", "fences", "once_functions", "outcomes"),
        SIMULATOR,
        "tests/upkeep/test_reconciler.py",
        "tests/upkeep/test_rulings.py",
    ],
}

# Mutants that no test could notice, as (file, line's text, change): reason. (2) is the second equal line.
_SAME_UNIT = "the row was read in the same transaction, which began as the only writer"
ALIKE: dict[tuple[str, str, str], str] = {
    ("stores/sqlite/claims.py", '" WHERE id = ? AND fence = ?"', "without AND fence = ?"): _SAME_UNIT,
    ("stores/sqlite/claims.py", '" WHERE id = ? AND fence = ?"', "without AND fence = ? (2)"): _SAME_UNIT,
    (
        "gate/effects.py",
        "check_step_name(call.step_name)",
        "left out",
    ): "the step's key checks the name again",
    (
        "gate/claim.py",
        "if reserved.steps:",
        "if True",
    ): "no steps are then no steps, and are removed once more at the end",
    (
        "gate/flows.py",
        "if not reserved.decision.claims:",
        "if False (2)",
    ): "a reservation that claims nothing has fence 0, and settling under it changes nothing",
    (
        "gate/settling.py",
        "if gate.commits.store.capabilities.one_writer:",
        "if True",
    ): "elsewhere the same is found out with one look more",
    (
        "stores/sqlite/claims.py",
        'self._connection.execute("RELEASE settle")',
        "left out",
    ): "the commit releases every savepoint, and the next one of that name stands above it",
    (
        "stores/sqlite/claims.py",
        "if cursor.rowcount == len(rows):",
        "if False",
    ): "which rows were inserted is looked up then, and all were",
    (
        "stores/sqlite/claims.py",
        "if cursor.rowcount == 0:",
        "if False",
    ): "which rows were inserted is looked up then, and there are none",
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file; `nth` tells apart equal lines of a file."""

    file: str
    line: int
    text: str
    change: str
    source: str
    nth: int = 1
    around: str = ""  # a digest of the definition that the line is in

    @property
    def name(self) -> str:
        """A name that stays the same while other lines of the file change."""
        return f"{self.file}: {self.text} -> {self._numbered}"

    @property
    def _numbered(self) -> str:
        return f"{self.change} ({self.nth})" if self.nth > 1 else self.change

    @property
    def why_alike(self) -> str | None:
        """Why nobody could notice it, if that is so."""
        return ALIKE.get((self.file, self.text, self._numbered))


def mutants(file: str, tree: Path) -> list[Mutant]:
    """Every mutant of a file of the tree, in the order of its lines."""
    source = (tree / PACKAGE / file).read_text("utf-8")
    around = _definitions(source)
    seen: Counter[tuple[str, str]] = Counter()
    made = []
    for line, change, changed in sorted((*_syntax_changes(source), *_clause_changes(source))):
        text = source.splitlines()[line - 1].strip()
        seen[text, change] += 1
        made.append(Mutant(file, line, text, change, changed, seen[text, change], around[line]))
    return made


def _definitions(source: str) -> dict[int, str]:
    """For each line a digest of the definition around it: as long as that holds, so does a verdict."""
    lines = source.splitlines()
    found: dict[int, str] = {}
    for node in ast.parse(source).body:
        assert node.end_lineno is not None
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        found |= dict.fromkeys(range(node.lineno, node.end_lineno + 1), digest)
    return found


def _syntax_changes(source: str) -> Iterator[tuple[int, str, str]]:
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and not _is_for_types(node):
            for value in ("True", "False"):
                yield node.lineno, f"if {value}", _replaced(source, node.test, value)
        elif _does_something(node, lines):
            yield node.lineno, "left out", _replaced(source, node, "pass")


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


def _clause_changes(source: str) -> Iterator[tuple[int, str, str]]:
    """Drops conditions of WHERE clauses, one at a time."""
    for found in re.finditer(r" AND \w+ (?:=|<|>|<=) (?:\?|\d)", source):
        # The parameter stays in its place: what is compared is only never unequal.
        clause = found.group()
        kept = " AND ? IS NOT NULL" if clause.endswith("?") else ""
        changed = source[: found.start()] + kept + source[found.end() :]
        yield source.count("\n", 0, found.start()) + 1, f"without{clause}", changed
