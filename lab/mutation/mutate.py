"""Takes protecting lines out of the safety core, one at a time: of the tests that run it, one must fail.

    python -m lab.mutation                 every mutant that was not tried since its function changed
    python -m lab.mutation settling.py     only those of one file
    python -m lab.mutation --again         once more those that survived, after tests were added
    python -m lab.mutation restore.py --tests tests/stores/test_replaced_files.py
                                           by these tests alone; no coverage is collected
    python -m lab.mutation --list          only says what would be tried

Works in copies of the tree, never in the tree itself. What came of each mutant is kept in `mutation.json`
beside this file, so that a run which is stopped goes on where it was; `docs/proof.md` shows the score.
A mutant that no test notices survives; it is listed, with its line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from lab import ROOT
from lab.mutation.covering import Covering, joined, load, place_of
from lab.mutation.host import NOT_IN_PLACE, Host
from lab.mutation.mutants import CORE, PACKAGE, Mutant, mutants
from lab.mutation.server import remove_left_databases, shared_server
from lab.mutation.trying import SURVIVED, first_failure

KEPT = ROOT / "build" / "mutation"
RESULTS = ROOT / "lab" / "mutation" / "mutation.json"
SECONDS_MAX = 400
KEEN_TESTS = 12  # that noticed most in the same file or function: they come first
FIRST_TESTS = 40  # tried by themselves: importing the files of all the others takes longer than they do
OTHERS_SECONDS_MAX = 60.0  # of the others, by how long they took under the tracer
_LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "*.db*")


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

    def keen(self) -> defaultdict[str, Counter[str]]:
        """How many mutants each test has noticed, by file and by definition: it may notice the next too."""
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for name, result in self._found.items():
            for place in (name.partition(":")[0], result["around"]):
                found[place][result["verdict"]] += 1
        return found

    def drop_stale(self) -> None:
        """Forgets verdicts about lines that are gone, and about functions that have changed."""
        there = {mutant.name for file in CORE for mutant in mutants(file, ROOT) if self.of(mutant)}
        self._found = {name: found for name, found in self._found.items() if name in there}

    def keep(self, mutant: Mutant, verdict: str) -> None:
        """Writes a verdict down."""
        self._found[mutant.name] = {"verdict": verdict, "around": mutant.around}
        self._place.write_text(json.dumps(self._found, indent=1, sort_keys=True) + "\n", "utf-8")


class Desk:
    """Where one worker tries mutants: a copy of the tree of its own, and a process that has it imported."""

    def __init__(self, folder: Path, results: Results, others: float, chosen: tuple[str, ...]) -> None:
        self._others = others
        self._folder = folder
        self._work = folder / "tree"
        self._keen = results.keen()
        shutil.copytree(ROOT, self._work, ignore=_LEFT_BEHIND)
        (folder / "host").mkdir()
        self.host = Host(self._work, folder / "host", chosen)
        self.covering: Covering | None = None

    def verdict(self, mutant: Mutant) -> str:
        """The test that fails with the mutant in place, or that it survived."""
        covering = self.covering
        tests = self.host.tests if covering is None else covering.of(mutant, ROOT)
        keen, around = self._keen[mutant.file], self._keen[mutant.around]
        keenest = sorted(tests, key=lambda test: -keen[test] - 10 * around[test])[:KEEN_TESTS]
        tests = list(dict.fromkeys([*keenest, *tests]))
        if covering is not None:
            tests = [*tests[:FIRST_TESTS], *covering.within(tests[FIRST_TESTS:], self._others)]
        try:
            found = self.host.first_failure(mutant, tests, SECONDS_MAX)
            found = self._in_a_new_process(mutant, tests) if found == NOT_IN_PLACE else found
        finally:
            remove_left_databases()
        keen[found] += 1
        around[found] += 1
        return found

    def _in_a_new_process(self, mutant: Mutant, tests: list[str]) -> str:
        """For what a module decides while it is imported."""
        place = self._work / PACKAGE / mutant.file
        before = place.read_text("utf-8")
        _write(place, mutant.source)
        try:
            for some in (tests[:FIRST_TESTS], tests[FIRST_TESTS:]):
                found = first_failure(some, self._work, self._folder, SECONDS_MAX) if some else SURVIVED
                if found != SURVIVED:
                    return found
            return SURVIVED
        finally:
            _write(place, before)


def _write(place: Path, source: str) -> None:
    """Writes a module anew; its bytecode goes, as two texts of one size in one second look alike."""
    place.write_text(source, "utf-8")
    for compiled in (place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"):
        compiled.unlink()


_desks: list[Desk] = []  # of this process: a worker has one


def _sit_down(folder: Path, results: Results, others: float, chosen: tuple[str, ...]) -> None:
    place = Path(tempfile.mkdtemp(dir=folder))
    place.chmod(0o755)  # the database server of the tests runs as another user
    _desks.append(Desk(place, results, others, chosen))


def _cover(part: int, parts: int, place: Path) -> None:
    _desks[0].host.cover(part, parts, place)


def _verdict(mutant: Mutant, place: Path | None) -> str:
    desk = _desks[0]
    desk.covering = desk.covering or (None if place is None else load(place))
    return desk.verdict(mutant)


def attempts(files: tuple[str, ...], results: Results, *, again: bool) -> Iterator[Mutant]:
    """The mutants to be tried, survivors first, in a mixed order: a stopped run has tried a fair sample."""
    everything = [mutant for file in files for mutant in mutants(file, ROOT) if not mutant.why_alike]
    everything.sort(key=lambda each: hashlib.sha256(each.name.encode()).digest())
    if again:
        yield from [mutant for mutant in everything if results.of(mutant) == SURVIVED]
    yield from (mutant for mutant in everything if results.of(mutant) is None)


def score(files: tuple[str, ...], results: Results) -> float:
    """Prints what survived and how many were noticed; returns the share in percent."""
    noticed = tried = 0
    for file in files:
        known = [(mutant, results.of(mutant)) for mutant in mutants(file, ROOT) if not mutant.why_alike]
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
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument(
        "--others", type=float, default=OTHERS_SECONDS_MAX, help="seconds of tests after the likeliest (60)"
    )
    parser.add_argument("--tests", nargs="*", default=[], help="only these tests, in the place of all near")
    parser.add_argument("--least", type=float, default=90.0, help="the score that is wanted (default: 90)")
    arguments = parser.parse_args()
    files = tuple(file for file in CORE if not arguments.files or file.endswith(tuple(arguments.files)))
    results = Results(RESULTS)
    results.drop_stale()
    wanted = list(attempts(files, results, again=arguments.again))
    if arguments.list:
        print("\n".join(f"{mutant.line}: {mutant.name}" for mutant in wanted))
        return 0
    if wanted and not arguments.score:
        _try_all(wanted, results, arguments.jobs, arguments.others, tuple(arguments.tests))
    return 0 if score(files, results) >= arguments.least else 1


def _try_all(
    wanted: list[Mutant], results: Results, jobs: int, others: float, chosen: tuple[str, ...]
) -> None:
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as name, shared_server(ROOT / "src"):
        folder = Path(name)
        folder.chmod(0o755)
        with ProcessPoolExecutor(jobs, fork, _sit_down, (folder, results, others, chosen)) as workers:
            place = None if chosen else _covered(workers, jobs)
            print(f"{'these' if place is None else len(load(place).lines)} tests run the core", flush=True)
            tried = {workers.submit(_verdict, mutant, place): mutant for mutant in wanted}
            for done in as_completed(tried):
                mutant, found = tried[done], done.result()
                results.keep(mutant, found)
                print(f"{found:60} line {mutant.line}: {mutant.name}", flush=True)


def _covered(workers: ProcessPoolExecutor, jobs: int) -> Path:
    """Has all tests near the core run with a tracer, a part a worker, if anything has changed."""
    place = place_of(ROOT, KEPT)
    if not place.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        parts = [KEPT / f"part-{part}.json" for part in range(jobs)]
        for done in [workers.submit(_cover, part, jobs, parts[part]) for part in range(jobs)]:
            done.result()
        place.write_text(joined(parts), "utf-8")
    return place
