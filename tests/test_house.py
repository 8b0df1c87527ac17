"""The structure keeps itself: names mean one thing, files and functions stay small, the map is complete."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "oncegate"

FILE_LINES_MAX, FUNCTION_LINES_MAX, CLASS_METHODS_MAX = 400, 40, 25

# One meaning, two homes: the same thing for ASGI and WSGI, and for each of the two SQL ledgers. A delivery
# is one of a queue or one of a lane, and a source is what is consumed: a queue or a feed.
SHARED_CLASS_NAMES: Final = {"Delivery", "IdempotencyKey", "Names", "Source"}

# Larger than the limits today. A number here may only become smaller; a new entry needs a reason.
LARGER_FILES: Final[dict[str, int]] = {
    "gate/once.py": 413,
    "stores/postgres/claims.py": 480,
    "stores/sqlite/claims.py": 439,
    "testing/conformance/arrivals.py": 438,
    "testing/conformance/lanes.py": 419,
    "testing/conformance/settlements.py": 412,
}
LARGER_FUNCTIONS: Final[dict[str, int]] = {
    "cli/endpoints.py:_add_add": 41,
    "gate/flows/admit.py:_run": 46,
    "gate/flows/admit.py:same_database_flow": 45,
    "gate/registration.py:handler": 124,
    "integrations/middleware.py:__init__": 41,
    "signals/prometheus.py:gauges": 88,
    "stores/postgres/statement_generators.py:judge_known": 56,
    "wiring/__init__.py:worker": 56,
}
LARGER_CLASSES: Final[dict[str, int]] = {
    "commit/group_commit.py:GroupCommit": 30,
    "dashboard/application.py:OperationsPage": 27,
    "gate/gate.py:GateEngine": 26,
    "gate/runtime/arrival_stats.py:Sightings": 27,
    "lanes/engine.py:Engine": 28,
    "service/application.py:Service": 29,
    "service/protocol.py:BoundedHttp": 37,
    "stores/postgres/claims.py:PostgresClaims": 43,
    "stores/postgres/lanes.py:PostgresLanes": 27,
    "stores/postgres/session.py:PostgresSession": 31,
    "stores/postgres/store.py:PostgresStore": 31,
    "stores/sqlite/claims.py:SqliteClaims": 37,
    "testing/conformance/arrivals.py:ArrivalConformance": 28,
    "testing/conformance/bench.py:StoreBench": 33,
    "testing/conformance/lanes.py:LaneConformance": 28,
    "testing/simulation/claims.py:SimulatedClaims": 36,
}


@functools.cache
def modules() -> list[tuple[str, str, ast.Module]]:
    """Every module of the package, read once: its path, text and tree."""
    found = [(path, path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))]
    return [(path.relative_to(SOURCE).as_posix(), text, ast.parse(text)) for path, text in found]


def beyond(sizes: dict[str, int], limit: int, allowed: dict[str, int]) -> dict[str, int]:
    """What is larger than it may be."""
    return {name: size for name, size in sizes.items() if size > allowed.get(name, limit)}


def settled(sizes: dict[str, int], limit: int, allowed: dict[str, int]) -> set[str]:
    """Entries of a list of exceptions that are not needed any more."""
    return {name for name in allowed if sizes.get(name, 0) <= limit}


@pytest.mark.slow
def test_one_class_name_means_one_thing() -> None:
    """No two public classes of the product share a name."""
    homes = defaultdict(list)
    for path, _, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path)
    shared = {name: found for name, found in homes.items() if len(found) > 1}
    assert {name: shared[name] for name in shared.keys() - SHARED_CLASS_NAMES} == {}


def test_files_stay_small() -> None:
    """A file of more than 400 lines holds a second concept."""
    sizes = {path: text.count("\n") for path, text, _ in modules()}
    assert beyond(sizes, FILE_LINES_MAX, LARGER_FILES) == {}
    assert settled(sizes, FILE_LINES_MAX, LARGER_FILES) == set()


@pytest.mark.slow
def test_functions_stay_small() -> None:
    """A function fits on a screen."""
    sizes: dict[str, int] = {}
    for path, _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name, lines = f"{path}:{node.name}", (node.end_lineno or 0) - node.lineno + 1
                sizes[name] = max(lines, sizes.get(name, 0))
    assert beyond(sizes, FUNCTION_LINES_MAX, LARGER_FUNCTIONS) == {}
    assert settled(sizes, FUNCTION_LINES_MAX, LARGER_FUNCTIONS) == set()


@pytest.mark.slow
def test_classes_stay_small() -> None:
    """A class has at most 25 methods of its own."""
    sizes = {
        f"{path}:{node.name}": sum(
            isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body
        )
        for path, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    assert beyond(sizes, CLASS_METHODS_MAX, LARGER_CLASSES) == {}
    assert settled(sizes, CLASS_METHODS_MAX, LARGER_CLASSES) == set()


def contract(name: str) -> dict[str, Any]:
    """One contract of the import linter, as pyproject.toml has it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return next(one for one in found if one["id"] == name)


def test_the_architecture_page_has_the_layers_of_the_linter() -> None:
    """The page lists them lowest first, with every package on the line of its layer."""
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    shown = page.split("<!-- layers: begin -->")[1].split("<!-- layers: end -->")[0]
    listed = [re.findall(r"`(\w+)`", line) for line in shown.strip().splitlines()]
    wanted = [[name.strip(" ()") for name in line.split("|")] for line in contract("packages")["layers"]]
    assert listed == wanted[::-1]


def test_the_architecture_page_names_every_package() -> None:
    """Each folder and file below the package's root has its line in the table."""
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    table = page.split("## The packages")[1].split("## Layers")[0]
    names = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in SOURCE.iterdir()
        if (path / "__init__.py").exists() or (path.suffix == ".py" and not path.name.startswith("__"))
    }
    assert {name for name in names if f"`{name}" not in table} == set()
