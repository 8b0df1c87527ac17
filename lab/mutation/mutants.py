"""The mutants of the safety core: what is mutated, how.

A mutant makes one `if` always or never true, leaves out one call that is made for what it does, or drops
one condition of a WHERE clause. `mutate.py` tries them.
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

from lab.mutation.alike import ALIKE

PACKAGE = Path("src/oncegate")
# The safety core: what decides, claims, calls, settles, orders and numbers.
CORE: tuple[str, ...] = (
    "model/states.py",
    "model/downstream.py",
    "gate/runtime/claim.py",
    "gate/flows/settlement.py",
    "gate/flows/admit.py",
    "commit/operations.py",
    "commit/review_operations.py",
    "stores/sqlite/claims.py",
    "stores/sqlite/new_keys.py",
    "stores/sqlite/bulk_settle.py",
    "stores/sqlite/open_entries.py",
    "gate/flows/effects.py",
    "gate/flows/key_injection.py",
    "gate/runtime/resources.py",
    "gate/flows/probe_log.py",
    "gate/flows/record_only.py",
    "gate/flows/conflicts.py",
    "stores/postgres/claims.py",
    "stores/postgres/statements.py",
    "stores/postgres/reserve_statements.py",
    "stores/postgres/settle_statements.py",
    "stores/postgres/join_statements.py",
    "stores/postgres/fused.py",
    "stores/postgres/record_only.py",
    "stores/postgres/statement_generators.py",
    "stores/sqlite/people.py",
    "stores/postgres/people.py",
    "stores/sqlite/lanes.py",
    "stores/postgres/lanes.py",
    "stores/postgres/lane_statements.py",
    "stores/postgres/lane_statement_generators.py",
    "stores/sqlite/feed.py",
    "stores/postgres/feed.py",
    # A ledger that goes back, another version of the program, another key template, batches of events.
    "commit/blocked.py",
    "commit/batching.py",
    "gate/declared.py",
    "gate/flows/identity.py",
    "gate/flows/late_results.py",
    "gate/runtime/recent.py",
    "gate/flows/recovery.py",
    "gate/flows/restore.py",
    "gate/flows/superseded_keys.py",
    "gate/flows/downstream_turns.py",
    "model/declarations.py",
    "model/identity.py",
    "store/alternatives.py",
    "store/incarnations.py",
    "stores/sqlite/incarnation.py",
    "stores/postgres/eras.py",
    "stores/postgres/incarnation.py",
)

# Tests that run the core in their own process and do not take long; which of them run which line is found
# out (see covering.py).
TESTS: tuple[str, ...] = (
    "tests/model/test_states.py",
    "tests/model/test_downstream.py",
    "tests/model/test_declarations.py",
    "tests/model/test_identity.py",
    "tests/gate",
    "tests/maintenance",
    "tests/lanes",
    "tests/feed",
    "tests/sender/test_trace.py",
    "tests/stores/test_conformance_sqlite.py",
    "tests/stores/test_claim_tokens.py",
    "tests/stores/test_first_claims.py",
    "tests/stores/test_replaced_files.py",
    "tests/stores/test_conformance_postgres.py",
    "tests/stores/postgres/test_ends_of_claims.py",
    "tests/stores/postgres/test_feed_order.py",
    "tests/stores/postgres/test_fewer_rights.py",
    "tests/stores/postgres/test_fused.py",
    "tests/stores/postgres/test_lane_statements.py",
    "tests/stores/postgres/test_log_order.py",
    "tests/stores/postgres/test_protecting_lanes.py",
    "tests/stores/postgres/test_protecting_lines.py",
    "tests/stores/postgres/test_protecting_scripts.py",
    "tests/stores/postgres/test_read_committed.py",
    "tests/stores/postgres/test_recorded.py",
    "tests/lab/simulator/test_near.py",
    "tests/stores/postgres/test_restored_dumps.py",
    "tests/stores/postgres/test_went_back.py",
    "tests/cli/test_restored.py",
    "tests/commit/test_unknown_outcomes.py",
    "tests/commit/test_group_commit.py",
    "tests/test_nested_events.py",
    "tests/test_replay_memory.py",
    "tests/test_zombies.py",
)
LONG: tuple[str, ...] = (
    "tests/gate/test_first_program.py",
    "tests/gate/test_transactions_guide.py",
    "tests/gate/test_wall_clock.py",
    "tests/lanes/test_crashes.py",
    "tests/lanes/test_engine_stalls.py",
    "tests/lanes/test_restart.py",
    "tests/lanes/test_went_back.py",
    "tests/review/test_bulk.py",
    "tests/maintenance/test_within_90_seconds.py",
)


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
    """For each line a digest of the function or statement around it: a verdict holds as long as that."""
    lines = source.splitlines()
    found: dict[int, str] = {}
    for node in _outermost(ast.parse(source).body):
        assert node.end_lineno is not None
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        found |= dict.fromkeys(range(node.lineno, node.end_lineno + 1), digest)
    return found


def _outermost(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Functions, methods and statements outside them; of a class, what is in it."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _outermost(node.body)
        else:
            yield node


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
    for found in re.finditer(r" AND [\w.]+ (?:=|<|>|<=) (\?\d*|%s|\d+)", source):
        # The parameter stays in its place: what is compared is only never unequal.
        clause, value = found.group(), found.group(1)
        kept = "" if value.isdigit() else f" AND {value}{'::text' if value == '%s' else ''} IS NOT NULL"
        changed = source[: found.start()] + kept + source[found.end() :]
        yield source.count("\n", 0, found.start()) + 1, f"without{clause}", changed
