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
    checked: set[str] = set()
    for mutant in attempts(files, work, results, again=arguments.again):
        if arguments.list:
            print(f"{mutant.line}: {mutant.name}")
            continue
        if mutant.file not in checked:  # tests that fail by themselves would notice everything
            checked.add(mutant.file)
            failure = first_failure(CORE[mutant.file], work)
            if failure != SURVIVED:
                raise SystemExit(f"{failure} fails without any mutant")
        found = verdict(mutant, work)
        results.keep(mutant, found)
        print(f"{found:60} line {mutant.line}: {mutant.name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
