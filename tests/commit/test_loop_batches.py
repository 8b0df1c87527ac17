"""Batches of an event loop: the loop writes them down, another thread commits them, nobody is held up."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncegate.commit import loop_batches
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.loop_batches import BATCH_MAX, BATCH_WHOLE_MAX, COMMIT_US_MAX, Committer, LoopBatches
from oncegate.commit.operations import Operation, Reserve, Settle
from oncegate.commit.pending import Pending
from oncegate.commit.transactions import Finish
from oncegate.errors import StoreRejected, StoreUnavailable
from oncegate.model.keys import derive_key
from oncegate.model.states import Decision, State
from oncegate.store import EntryFilter, Reservation, Reserved, Settlement, Statement
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ArmedCrashPoints, Fault, Faults, ManualClock, faulty, wait_until
from oncegate.testing.waiting import DEADLINE_SECONDS

CROWD = 100


class Site:
    """A group commit on a real ledger, with a session at hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults = Faults()
        self.store = SqliteStore(path)
        self.committers: list[str] = []
        self._opened: list[GroupCommit] = []

    def commits(self, **options: Any) -> GroupCommit:
        opened = GroupCommit(faulty(self.store, self.faults), **options)
        self._opened.append(opened)
        opened.submit(reserve("first"))  # so that a session is idle
        self.faults.calls.clear()
        self.faults.before_commit = lambda: self.committers.append(threading.current_thread().name)
        return opened

    def labels(self, *states: State) -> set[str]:
        with self.store.look() as session:
            found = session.entries(EntryFilter(states), None, 10_000)
            return {entry.label for entry in found} - {"first"}

    def close(self) -> None:
        for commits in self._opened:
            commits.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    opened = Site(tmp_path / "ledger.db")
    yield opened
    opened.close()


def reserve(name: str) -> Reserve:
    key = derive_key("", "orders", "{id}", (name,)).digest
    return Reserve(
        Reservation(key, "", "orders", name, b"content", b"{}", 1, 20_000, 8, hash(name) % 2**62)
    )


def settle(claim: Reserved, *writes: Statement) -> Settle:
    return Settle(Settlement(*claim.claim, State.COMMITTED, 1, "test", b"1", writes=writes))


def crowd(prefix: str = "e") -> list[Operation[Any]]:
    return [reserve(f"{prefix}{number}") for number in range(CROWD)]


async def ask(commits: GroupCommit, operations: list[Operation[Any]]) -> list[Any]:
    tasks = [commits.submit_async(operation) for operation in operations]
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), DEADLINE_SECONDS)


async def turn_until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until something holds."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110  the loop's own turns are what is waited for
            await asyncio.sleep(0)


def run_decisions(answers: list[Any]) -> list[Any]:
    return [answer.decision if isinstance(answer, Reserved) else answer for answer in answers]


# --- on a real ledger ------------------------------------------------------------------------------


def test_crowd_is_committed_in_halves_beside_the_loop(site: Site) -> None:
    """The first batch is half of what waits, so that its tasks go on while the rest is committed."""
    commits = site.commits()

    answers = asyncio.run(ask(commits, crowd()))

    assert run_decisions(answers) == [Decision.RUN] * CROWD
    assert site.faults.sizes("reserve") == [CROWD // 2, CROWD // 2]
    assert site.committers == ["oncegate-committer"] * 2


def test_loop_goes_on_and_nobody_is_answered_while_a_commit_is_under_way(site: Site) -> None:
    """A commit that takes its time holds up those who wait for it, and only them."""
    commits = site.commits()
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert release.wait(DEADLINE_SECONDS), "nobody released the commit"

    site.faults.before_commit = hold

    async def look_meanwhile() -> list[Any]:
        asked = asyncio.create_task(ask(commits, crowd()))
        await turn_until(entered.is_set)
        for _ in range(1_000):  # the loop turns while the commit stands still
            await asyncio.sleep(0)
        assert not asked.done()
        assert site.labels() == set()
        release.set()
        return await asked

    assert run_decisions(asyncio.run(look_meanwhile())) == [Decision.RUN] * CROWD
    assert len(site.labels()) == CROWD


def test_another_process_that_writes_does_not_hold_up_the_loop(site: Site) -> None:
    """What would have to wait for the file's lock is left to the writer thread."""
    commits = site.commits()

    async def write_beside() -> list[Any]:
        with contextlib.closing(sqlite3.connect(site.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            asked = asyncio.create_task(ask(commits, crowd()))
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert not asked.done()
            other.execute("COMMIT")
        return await asked

    assert run_decisions(asyncio.run(write_beside())) == [Decision.RUN] * CROWD
    assert set(site.committers) == {"oncegate-writer-1"}


def test_refused_write_fails_only_its_own_caller(site: Site) -> None:
    """A batch that cannot be written down as a whole is taken apart by the writer thread."""
    commits = site.commits()
    claims = asyncio.run(ask(commits, crowd()))
    settlements: list[Operation[Any]] = [settle(claim) for claim in claims]
    settlements[3] = settle(claims[3], ("INSERT INTO nowhere VALUES (1)", ()))

    answers = asyncio.run(ask(commits, settlements))

    assert isinstance(answers.pop(3), StoreRejected)
    assert answers == [True] * (CROWD - 1)
    assert site.labels(State.IN_FLIGHT) == {"e3"}


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.UNDONE])
def test_doubtful_commit_is_read_back(site: Site, fault: Fault) -> None:
    """Whether the commit happened is read, never guessed (I5)."""
    commits = site.commits()
    site.faults.plan.append(fault)

    answers = asyncio.run(ask(commits, crowd()))

    first_half = answers[: CROWD // 2]
    if fault is Fault.LOST_REPLY:
        assert run_decisions(first_half) == [Decision.RUN] * (CROWD // 2)
    else:
        assert {type(answer) for answer in first_half} == {StoreUnavailable}
    assert run_decisions(answers[CROWD // 2 :]) == [Decision.RUN] * (CROWD // 2)
    assert len(site.labels()) == (CROWD if fault is Fault.LOST_REPLY else CROWD // 2)


def test_interrupt_before_the_commit_undoes_the_batch_and_it_is_run_again(site: Site) -> None:
    """What ends in the loop leaves nothing behind; the writer thread runs it, and all are answered."""
    commits = site.commits(crashpoints=ArmedCrashPoints.raising("commit.before", occurrence=2))

    answers = asyncio.run(ask(commits, crowd()))

    assert run_decisions(answers) == [Decision.RUN] * CROWD
    assert len(site.labels()) == CROWD


def test_threads_and_tasks_have_their_turns(site: Site) -> None:
    """A loop that always has something to write does not shut out a thread."""
    commits = site.commits()
    done = threading.Event()

    async def write_on() -> int:
        rounds = 0
        while not done.is_set():
            await ask(commits, crowd(f"r{rounds}-"))
            rounds += 1
        return rounds

    def write_beside() -> None:
        for number in range(20):
            commits.submit(reserve(f"thread-{number}"))
        done.set()

    thread = threading.Thread(target=write_beside)
    thread.start()
    rounds = asyncio.run(write_on())
    thread.join(DEADLINE_SECONDS)

    assert {label for label in site.labels() if label.startswith("thread")} == {
        f"thread-{number}" for number in range(20)
    }
    assert len(site.labels()) == 20 + rounds * CROWD


def test_closing_waits_for_the_commit_under_way(site: Site) -> None:
    """Closed in the middle, everybody has a durable answer or an error, and nothing is left open."""
    commits = site.commits()

    async def close_between() -> list[Any]:
        asked = asyncio.create_task(ask(commits, crowd()))
        await turn_until(lambda: bool(site.faults.sizes("reserve")))
        commits.close()
        return await asked

    answers = asyncio.run(close_between())

    kept = [answer for answer in answers if isinstance(answer, Reserved)]
    assert all(isinstance(answer, (Reserved, StoreUnavailable)) for answer in answers)
    assert len(site.labels()) == len(kept) == CROWD // 2
    assert not commits._units._idle


# --- how much at once ------------------------------------------------------------------------------


class Pace:
    """A ledger that takes as long as it is told, and notes who was asked to do what."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.statement_us = 0
        self.commit_us = 0
        self.begun: list[int] = []
        self.handed_over: list[int] = []

    def begin_batch(self, tickets: list[Pending]) -> Finish | None:
        self.begun.append(len(tickets))
        self.clock.advance(self.statement_us * len(tickets) / 1e6)
        return lambda: self.clock.advance(self.commit_us / 1e6)

    def hand_over(self, tickets: list[Pending]) -> None:
        self.handed_over.append(len(tickets))


class Prompt(Committer):
    """Commits at once, in the same thread."""

    def put(self, work: Finish) -> None:
        work()


def add_crowds(
    pace: Pace, size: int, times: int, after_each: Callable[[LoopBatches], None] = lambda batches: None
) -> None:
    async def add() -> None:
        batches = LoopBatches(asyncio.get_running_loop(), pace, Prompt(), pace.clock)
        for _ in range(times):
            batches.add([Pending(reserve("e")) for _ in range(size)])
            after_each(batches)
            await turn_until(lambda: not batches.waiting)
            await asyncio.sleep(0)

    asyncio.run(add())


def test_small_crowd_is_one_batch() -> None:
    """A commit costs as much as a few dozen events."""
    pace = Pace()

    add_crowds(pace, BATCH_WHOLE_MAX, 3)

    assert pace.begun == [BATCH_WHOLE_MAX] * 3


def test_slow_disk_gets_whole_batches() -> None:
    """Where the commit is what takes long, there are as few of them as possible."""
    pace = Pace()
    pace.commit_us = 10 * COMMIT_US_MAX

    add_crowds(pace, 100, 3)

    assert pace.begun[-1] == 100


def test_slow_statements_are_left_to_the_writer_thread_and_tried_again() -> None:
    """A user's statements that take long hold up their own thread, not the loop, and not for ever."""
    pace = Pace()
    pace.statement_us = 100_000

    def quicken(batches: LoopBatches) -> None:
        pace.statement_us = 0

    add_crowds(pace, 8, 200, after_each=quicken)

    assert pace.begun[0] == pace.begun[-1] == 8
    assert len(pace.handed_over) > 10


def test_batch_has_a_limit() -> None:
    """However quick the statements are, the loop gets its turn."""
    pace = Pace()

    add_crowds(pace, 4 * BATCH_MAX, 10)

    assert max(pace.begun) <= BATCH_MAX


def test_thread_that_is_slow_to_take_up_a_commit_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop waits for its commit to be taken up, but not for long; and never for an earlier one's sake."""
    # Given a thread that is kept by a commit
    committer, release = Committer(), threading.Event()
    done: list[int] = []
    committer.put(lambda: done.append(int(release.wait(DEADLINE_SECONDS))))
    # When another one is put, then whoever puts it goes on
    committer.put(lambda: done.append(2))
    assert not done
    # And when the thread is free again, the next one is waited for, not the one that came late
    release.set()
    wait_until(lambda: done == [1, 2], what="the two commits")
    monkeypatch.setattr(loop_batches, "TAKEN_UP_SECONDS_MAX", DEADLINE_SECONDS)
    committer.put(lambda: done.append(3))
    assert committer._taken_up.empty()
    committer.close()
    assert done == [1, 2, 3]
