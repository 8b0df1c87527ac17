"""A process that has imported the package and all tests once, and forks for every mutant.

What a mutant costs is then the tests that it takes to notice it, and neither imports nor collecting.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import pytest

from lab.mutation.covering import Tracer
from lab.mutation.mutants import LONG, PACKAGE, TESTS, Mutant
from lab.mutation.patching import changed_code, put_in
from lab.mutation.trying import HUNG, SURVIVED, FirstFailure, end_group, start_tests, wait_for

NOT_IN_PLACE = "not in place"
_NOT_PUT_IN, _FAILED = 4, 1
COVERING_SECONDS_MAX = 7200


class Host:
    """The parent's end: what it asks for is done by a fork of the process with everything imported."""

    def __init__(self, work: Path, folder: Path, chosen: Sequence[str] = ()) -> None:
        self._asks, theirs = Pipe()
        tests = list(chosen) or [*TESTS, *(f"--ignore={test}" for test in LONG)]
        self._pid = os.fork()
        if self._pid == 0:
            self._asks.close()
            start_tests(tests, work, folder, _Serving(theirs, work, folder), ["-s"])
        theirs.close()
        self.tests: list[str] = self._asks.recv()

    def first_failure(self, mutant: Mutant, tests: list[str], seconds: float) -> str:
        """Runs tests against a mutant until one fails: its name, or how it ended."""
        self._asks.send(("try", mutant, tests, seconds))
        return str(self._asks.recv())

    def cover(self, part: int, parts: int, place: Path) -> None:
        """Runs one of several parts of all tests, and writes down which lines each runs."""
        self._asks.send(("cover", part, parts, place))
        self._asks.recv()

    def close(self) -> None:
        """Ends the process."""
        self._asks.close()
        end_group(self._pid)


class _Serving:
    """A pytest plugin: in the place of running the tests, it waits for what is asked."""

    def __init__(self, asked: Connection, work: Path, folder: Path) -> None:
        self._asked, self._work, self._folder = asked, work, folder

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self._asked.send(list(items))
        while True:
            try:
                what, *rest = self._asked.recv()
            except EOFError:
                return True
            if what == "try":
                self._asked.send(self._try(items, *rest))
            else:
                self._cover(session, *rest)
                self._asked.send(None)

    def _try(self, items: dict[str, pytest.Item], mutant: Mutant, tests: list[str], seconds: float) -> str:
        place = self._work / PACKAGE / mutant.file
        found = changed_code(place.read_text("utf-8"), mutant.source, str(place))
        wanted = [items[test] for test in tests if test in items]
        if found is None or not wanted:
            return NOT_IN_PLACE
        failed = self._folder / "failed"
        failed.unlink(missing_ok=True)

        def run() -> int:
            if not put_in(*found):
                return _NOT_PUT_IN
            return _run(wanted, FirstFailure(failed), failed.exists)

        code = _in_child(run, seconds)
        if failed.exists():
            return failed.read_text("utf-8")
        return {None: HUNG, 0: SURVIVED, _NOT_PUT_IN: NOT_IN_PLACE}.get(code, f"ended with {code}")

    def _cover(self, session: pytest.Session, part: int, parts: int, place: Path) -> None:
        tracer = Tracer(self._work, place)

        def run() -> int:
            code = _run(session.items[part::parts], tracer, lambda: False)
            tracer.pytest_sessionfinish()
            return code

        _in_child(run, COVERING_SECONDS_MAX)


def _run(items: list[pytest.Item], plugin: object, is_over: Callable[[], bool]) -> int:
    items[0].config.pluginmanager.register(plugin)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if is_over():
            return _FAILED
    return 0


def _in_child(run: Callable[[], int], seconds: float) -> int | None:
    child = os.fork()
    if child == 0:
        _run_here(run)
    try:
        return wait_for(child, seconds)
    finally:
        end_group(child)


def _run_here(run: Callable[[], int]) -> NoReturn:
    os.setsid()
    code = 3
    try:
        code = run()
    except BaseException:  # noqa: BLE001  nothing may get past here into the parent's run
        traceback.print_exc()
    finally:
        os._exit(code)
