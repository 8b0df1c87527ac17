"""Takes protecting lines out of the safety core, one at a time, and runs the tests near by: each must fail.

    python proof/mutate.py                 every mutant that has not been tried since its file last changed
    python proof/mutate.py settling.py     only those of one file
    python proof/mutate.py --again         once more those that survived, after tests were added
    python proof/mutate.py --list          only says what would be tried

Works in a copy of the tree, never in the tree itself. What came of each mutant is kept in
`proof/mutation.json`, so that a run which is stopped goes on where it was; `docs/proof.md` shows the score.
A mutant that no test notices survives; it is listed, with its line.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from mutants import CORE, PACKAGE, Mutant, mutants

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "proof" / "mutation.json"
SECONDS_MAX = 400
TEST_SECONDS_MAX = 60
SURVIVED = "survived"
_LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "*.db*")
_PLUGINS = ("pytest_timeout", "oncegate.testing.plugin", "no:cacheprovider")
_OPTIONS = ("-x", "-q", "--tb=line", *(part for name in _PLUGINS for part in ("-p", name)))
# Plugins that take seconds to import and that no test of the core needs stay out; what the tests import is
# imported once, before the first of many forks. Never the package itself: each mutant imports its own.
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
for _name in ("hypothesis", "psycopg", "pydantic", "sqlalchemy.ext.asyncio"):
    importlib.import_module(_name)


class Results:
    """What came of each mutant, by its name; it holds as long as the definition around the line does."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._found: dict[str, dict[str, str]] = (
            json.loads(place.read_text("utf-8")) if place.exists() else {}
        )

    def of(self, mutant: Mutant) -> str | None:
        """The verdict about a mutant, if there is one about the code as it is now."""
        found = self._found.get(mutant.name)
        return found["verdict"] if found and found["around"] == mutant.around else None

    def keep(self, mutant: Mutant, verdict: str) -> None:
        """Writes a verdict down."""
        self._found[mutant.name] = {"verdict": verdict, "around": mutant.around}
        self._place.write_text(json.dumps(self._found, indent=1, sort_keys=True) + "\n", "utf-8")


def verdict(mutant: Mutant, work: Path) -> str:
    """The test that fails with the mutant in place, or that it survived."""
    place = work / PACKAGE / mutant.file
    before = place.read_text("utf-8")
    _write(place, mutant.source)
    nearest, *others = CORE[mutant.file]
    try:
        found = first_failure([nearest], work)
        return found if found != SURVIVED else first_failure(others, work)
    finally:
        _write(place, before)


def _write(place: Path, source: str) -> None:
    """Writes a module anew; its bytecode goes, as two texts of one size in one second look alike."""
    place.write_text(source, "utf-8")
    for compiled in (place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"):
        compiled.unlink()


def first_failure(tests: list[str], work: Path) -> str:
    """Runs tests in the copy, in a forked process, until one fails; its name, or that all passed."""
    place = work.parent / "told"
    child = os.fork()
    if child == 0:
        _run_tests(tests, work, place)
    try:
        code = _wait(child)
    finally:
        _end_group(child)
    return "hung" if code is None else _judged(code, place.read_text("utf-8", "replace"))


def _run_tests(tests: list[str], work: Path, place: Path) -> NoReturn:
    """In the child: everything but the package itself has been imported already."""
    os.setsid()
    out = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(work)
    os.environ["PYTHONPATH"] = str(work / "src")
    sys.path[:0] = [str(work / "src")]
    options = [*_OPTIONS, f"--timeout={TEST_SECONDS_MAX}", f"--basetemp={work.parent / 'pytest'}"]
    code = 3
    try:
        code = int(pytest.main([*options, *tests]))
    except BaseException:  # noqa: BLE001  nothing may get past here into the parent's run
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int) -> int | None:
    """The exit code, or None if there was none in time."""
    for _ in range(SECONDS_MAX * 20):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        select.select([], [], [], 0.05)
    return None


def _end_group(leader: int) -> None:
    """Ends the tests if they hang, and whatever they have started and not ended, a server for example."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.killpg(leader, signal.SIGKILL)
        os.waitpid(leader, 0)


def _judged(code: int, told: str) -> str:
    if code == 0:
        return SURVIVED
    if code not in (1, 2):  # neither failed tests nor a file that could not be imported
        raise SystemExit(f"pytest ended with {code}:\n{told[-2000:]}")
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", told, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pytest failed before any test ended:\n{told[-2000:]}")
    return found.group(1)


def attempts(files: list[str], work: Path, results: Results, *, again: bool) -> Iterator[Mutant]:
    """The mutants to be tried, survivors first, in a mixed order: a stopped run has tried a fair sample."""
    everything = [mutant for file in files for mutant in mutants(file, work) if not mutant.why_alike]
    everything.sort(key=lambda each: hashlib.sha256(each.name.encode()).digest())
    if again:
        yield from [mutant for mutant in everything if results.of(mutant) == SURVIVED]
    yield from (mutant for mutant in everything if results.of(mutant) is None)


def score(files: list[str], work: Path, results: Results) -> float:
    """Prints what survived and how many were noticed; returns the share in percent."""
    noticed = tried = 0
    for file in files:
        known = [(mutant, results.of(mutant)) for mutant in mutants(file, work) if not mutant.why_alike]
        survivors = [mutant for mutant, found in known if found == SURVIVED]
        for mutant in survivors:
            print(f"survived, line {mutant.line}: {mutant.name}")
        here = sum(found is not None for _, found in known)
        print(f"{file}: {here - len(survivors)} of {here}, {len(known) - here} not tried")
        noticed, tried = noticed + here - len(survivors), tried + here
    share = 100 * noticed / tried if tried else 0.0
    print(f"{noticed} of {tried} mutants were noticed: {share:.1f} %")
    return share


def main() -> int:
    """Tries what has not been tried and tells the score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="only files whose name ends so")
    parser.add_argument("--list", action="store_true", help="only list the mutants that would be tried")
    parser.add_argument("--again", action="store_true", help="also those that survived the last time")
    parser.add_argument("--score", action="store_true", help="only tell the score so far")
    parser.add_argument("--least", type=float, default=90.0, help="the score that is wanted (default: 90)")
    arguments = parser.parse_args()
    files = [file for file in CORE if not arguments.files or file.endswith(tuple(arguments.files))]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "tree"
        shutil.copytree(ROOT, work, ignore=_LEFT_BEHIND)
        results = Results(RESULTS)
        if not arguments.score:
            _try_all(files, work, results, arguments)
        if arguments.list:
            return 0
        return 0 if score(files, work, results) >= arguments.least else 1


def _try_all(files: list[str], work: Path, results: Results, arguments: argparse.Namespace) -> None:
    trusted: set[str] = set()
    for mutant in attempts(files, work, results, again=arguments.again):
        if arguments.list:
            print(f"{mutant.line}: {mutant.name}")
            continue
        found = verdict(mutant, work)
        _check_trusted(found, work, trusted)
        results.keep(mutant, found)
        print(f"{found:60} line {mutant.line}: {mutant.name}", flush=True)


def _check_trusted(found: str, work: Path, trusted: set[str]) -> None:
    """A test that fails by itself would notice everything: whoever notices must pass without a mutant."""
    test = found.partition("[")[0]
    if "::" not in test or test in trusted:
        return
    if first_failure([test], work) != SURVIVED:
        raise SystemExit(f"{test} fails without any mutant")
    trusted.add(test)


if __name__ == "__main__":
    sys.exit(main())
