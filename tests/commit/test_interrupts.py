"""What a signal raises, wherever it comes: nobody's turn is kept for ever (I18).

The interpreter looks for signals where a function begins and where a call has returned. A profiler is told
of the same places, and raises at each of them in turn.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from oncegate import Gate, Once, Verdict
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import ReadEntry
from oncegate.commit.pending import Pending
from oncegate.gate.runtime.tracing import current_claim
from oncegate.model.keys import derive_key
from oncegate.stores.sqlite import SqliteStore

PLACES_MAX = 5_000
COMMIT_SECONDS_MAX = 10.0
OURS = (
    "oncegate.gate",
    "oncegate.commit.group_commit",
    "oncegate.commit.pending",
    "oncegate.commit.transactions",
    "oncegate.stores.sqlite.claims",
)
LOOKED_AT = {"call", "c_return"}


class Interrupted(BaseException):
    """Comes like the interrupt of a person, or a limit of time."""


def interrupted_at(place: int, work: Callable[[], object]) -> int:
    """Does some work, and raises at the place of that number in it; tells how many places were passed."""
    passed = 0

    def look(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal passed
        if event in LOOKED_AT and frame.f_globals["__name__"].startswith(OURS):
            passed += 1
            if passed == place:
                raise Interrupted

    with contextlib.suppress(Interrupted):
        sys.setprofile(look)
        work()
    sys.setprofile(None)
    return passed


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A gate with a handler of each kind that writes in another way."""
    with Gate(f"sqlite:///{tmp_path / 'ledger.db'}") as opened:

        @opened.handler("data", key="{id}")
        def data(event: dict[str, int]) -> int:
            return event["id"]

        @opened.handler("block", key="{id}")
        def block(event: dict[str, int], once: Once) -> int:
            with once.commit(outcome=1) as tx:
                tx.execute("SELECT 1")
            return 1

        @opened.handler("same", key="{id}", same_database=True)
        def same(event: dict[str, int], once: Once) -> int:
            once.tx.execute("SELECT 1")
            return 1

        for surface in ("data", "block", "same"):
            opened.admit_sync(surface, {"id": 0})
        yield opened


def is_free(commits: GroupCommit) -> bool:
    """Whether nobody keeps the turn to write; who has it for a commit gives it back."""
    held: list[None] = []
    if commits._turns.take(held, COMMIT_SECONDS_MAX):
        commits._turns.give_back(None)
    return bool(held)


# One that comes while something is finalised is only printed: the interpreter lets none pass from there.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("surface", ["data", "block", "same"])
def test_the_turn_is_free_after_an_interrupt_anywhere(gate: Gate, surface: str) -> None:
    for place in range(1, PLACES_MAX):
        passed = interrupted_at(place, partial(gate.admit_sync, surface, {"id": place}))
        assert is_free(gate.engine.commits), f"interrupted at place {place}"
        assert current_claim.get() is None, f"interrupted at place {place}"
        if passed < place:
            break
    else:
        pytest.fail("the end was never reached")
    assert gate.admit_sync(surface, {"id": -1}).verdict is Verdict.RUN
    gc.collect()  # what the interrupts left behind is finalised here, and not in another test


def test_a_batch_that_is_lost_on_its_way_to_the_commit_is_committed(tmp_path: Path) -> None:
    """An interrupt between writing a batch down and handing it over leaves nobody who knows of it."""
    commits = GroupCommit(SqliteStore(tmp_path / "ledger.db"))
    ask: Callable[[], Pending] = lambda: Pending(ReadEntry(derive_key("", "s", "{id}", ("e",)).digest))  # noqa: E731
    commits.submit(ask().operation)
    begun = commits.begin_batch([ask()])
    assert begun is not None
    assert not commits._turns.take([])
    del begun
    assert is_free(commits)
    commits.close()
