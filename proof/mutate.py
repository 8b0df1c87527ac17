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
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutants import CORE, PACKAGE, Mutant, mutants

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "proof" / "mutation.json"
SECONDS_MAX = 400
TEST_SECONDS_MAX = 60
SURVIVED = "survived"
_LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "*.db*")
# Plugins that take seconds to import and that no test of the core needs.
_PYTEST = ["-m", "pytest", "-x", "-q", "--tb=line", "-p", "pytest_timeout", "-p", "oncegate.testing.plugin"]


class Results:
    """What came of each mutant, by file: the file's digest, and verdicts by name."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._files: dict[str, Any] = json.loads(place.read_text("utf-8")) if place.exists() else {}

    def of(self, file: str, digest: str) -> dict[str, str]:
        """The verdicts about a file as it is now; those about an older text of it are dropped."""
        if self._files.get(file, {}).get("digest") != digest:
            self._files[file] = {"digest": digest, "verdicts": {}}
        verdicts: dict[str, str] = self._files[file]["verdicts"]
        return verdicts

    def keep(self) -> None:
        """Writes everything down."""
        self._place.write_text(json.dumps(self._files, indent=1, sort_keys=True) + "\n", "utf-8")


def verdict(mutant: Mutant, work: Path) -> str:
    """The test that fails with the mutant in place, or that it survived."""
    place = work / PACKAGE / mutant.file
    before = place.read_text("utf-8")
    _write(place, mutant.source)
    try:
        return first_failure(CORE[mutant.file], work)
    finally:
        _write(place, before)


def _write(place: Path, source: str) -> None:
    """Writes a module anew; its bytecode goes, as two texts of one size in one second look alike."""
    place.write_text(source, "utf-8")
    for compiled in (place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"):
        compiled.unlink()


def first_failure(tests: list[str], work: Path) -> str:
    """Runs tests in the copy until one fails; its name, or that all passed."""
    command = [sys.executable, *_PYTEST, f"--timeout={TEST_SECONDS_MAX}", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(work / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(
        [*command, f"--basetemp={work.parent / 'pytest'}", *tests], cwd=work, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as run:  # fmt: skip
        try:
            told, _ = run.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return "hung"
        finally:
            _end_group(run.pid)
    return _judged(run.returncode, told)


def _end_group(leader: int) -> None:
    """Ends whatever the tests have started and not ended, a server for example."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _judged(code: int, told: str) -> str:
    if code == 0:
        return SURVIVED
    if code not in (1, 2):  # neither failed tests nor a file that could not be imported
        raise SystemExit(f"pytest ended with {code}:\n{told[-2000:]}")
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", told, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pytest failed before any test ended:\n{told[-2000:]}")
    return found.group(1)


def attempts(
    files: list[str], work: Path, results: Results, *, again: bool
) -> Iterator[tuple[Mutant, dict[str, str]]]:
    """The mutants that are to be tried, each with the verdicts of its file."""
    for file in files:
        digest = hashlib.sha256((work / PACKAGE / file).read_bytes()).hexdigest()[:16]
        verdicts = results.of(file, digest)
        for mutant in mutants(file, work):
            if mutant.why_alike:
                verdicts.pop(mutant.name, None)
            elif mutant.name not in verdicts or (again and verdicts[mutant.name] == SURVIVED):
                yield mutant, verdicts


def score(files: list[str], work: Path, results: Results) -> float:
    """Prints what survived and how many were noticed; returns the share in percent."""
    noticed = tried = 0
    for file in files:
        verdicts = results.of(file, hashlib.sha256((work / PACKAGE / file).read_bytes()).hexdigest()[:16])
        lines = {mutant.name: mutant.line for mutant in mutants(file, work)}
        survivors = [name for name, found in verdicts.items() if found == SURVIVED]
        for name in survivors:
            print(f"survived, line {lines.get(name)}: {name}")
        print(f"{file}: {len(verdicts) - len(survivors)} of {len(verdicts)}")
        noticed, tried = noticed + len(verdicts) - len(survivors), tried + len(verdicts)
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
    checked: set[str] = set()
    for mutant, verdicts in attempts(files, work, results, again=arguments.again):
        if arguments.list:
            print(f"{mutant.line}: {mutant.name}")
            continue
        if mutant.file not in checked:  # tests that fail by themselves would notice everything
            checked.add(mutant.file)
            failure = first_failure(CORE[mutant.file], work)
            if failure != SURVIVED:
                raise SystemExit(f"{failure} fails without any mutant")
        verdicts[mutant.name] = verdict(mutant, work)
        results.keep()
        print(f"{verdicts[mutant.name]:60} line {mutant.line}: {mutant.name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
