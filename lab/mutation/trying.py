"""Runs tests in a copy of the tree, in a forked process, until one fails.

Everything but the package itself is imported once, before the first of many forks: each mutant imports the
package anew. One PostgreSQL server serves all of them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import pytest

TEST_SECONDS_MAX = 60
SURVIVED, HUNG = "survived", "hung"
_NOT_IMPORTED = "ImportError while loading conftest"
_PLUGINS = ("pytest_timeout", "oncegate.testing.plugin", "no:cacheprovider")
_OPTIONS = ("-q", "--tb=line", *(part for name in _PLUGINS for part in ("-p", name)))
# Plugins that take seconds to import and that no test of the core needs stay out.
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
for _name in ("hypothesis", "psycopg", "pydantic", "sqlalchemy.ext.asyncio"):
    importlib.import_module(_name)


class FirstFailure:
    """A pytest plugin: writes down the first test that fails, or the file that could not be imported."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._keep(report.nodeid, failed=report.failed)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._keep(report.nodeid, failed=report.failed)

    def _keep(self, name: str, *, failed: bool) -> None:
        if failed and not self._place.exists():
            self._place.write_text(name, "utf-8")


def first_failure(tests: list[str], work: Path, folder: Path, seconds: float) -> str:
    """Runs tests until one fails; its name, or that all passed."""
    place = folder / "failed"
    place.unlink(missing_ok=True)
    code = run_tests(tests, work, folder, FirstFailure(place), seconds, stop=True)
    if code is None:
        return HUNG
    if code == 0:
        return SURVIVED
    if place.exists():
        return place.read_text("utf-8")
    told = (folder / "told").read_text("utf-8")
    if _NOT_IMPORTED in told:  # the package itself refuses to be what the mutant made of it
        return "tests/conftest.py"
    raise SystemExit(f"pytest ended with {code}:\n{told[-2000:]}")


def run_tests(
    tests: list[str], work: Path, folder: Path, plugin: object, seconds: float, *, stop: bool
) -> int | None:
    """Runs tests in a child with a plugin; its exit code, or None if it did not end in time."""
    child = os.fork()
    if child == 0:
        start_tests(tests, work, folder, plugin, ["-x"] if stop else [])
    try:
        return wait_for(child, seconds)
    finally:
        end_group(child)


def start_tests(tests: list[str], work: Path, folder: Path, plugin: object, more: list[str]) -> NoReturn:
    """Runs tests in this process, a child, and ends it."""
    os.setsid()
    out = os.open(folder / "told", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(work)
    os.environ["PYTHONPATH"] = str(work / "src")
    sys.path[:0] = [str(work / "src")]
    options = [*_OPTIONS, f"--timeout={TEST_SECONDS_MAX}", f"--basetemp={folder / 'pytest'}"]
    code = 3
    try:
        code = int(pytest.main([*options, *more, *tests], plugins=[plugin]))
    except BaseException:  # noqa: BLE001  nothing may get past here into the parent's run
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait_for(child: int, seconds: float) -> int | None:
    """A child's exit code, or None if it does not end in time."""
    for _ in range(int(seconds * 20)):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        select.select([], [], [], 0.05)
    return None


def end_group(leader: int) -> None:
    """Ends the tests if they hang, and whatever they have started and not ended."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.killpg(leader, signal.SIGKILL)
        os.waitpid(leader, 0)
