"""Group commit: who shares a batch, who fails alone, and what happens at its limits and its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate
from oncegate.commit import group_commit, writer_threads
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Operation, RecordProgress, Reserve, Settle
from oncegate.errors import OncegateError, StoreBusy, StoreRejected, StoreUnavailable, StoreUnknown
from oncegate.model.keys import derive_key
from oncegate.model.states import Decision, State
from oncegate.store import (
    EntryFilter,
    Reservation,
    Reserved,
    Session,
    Settlement,
    Statement,
    StepRecord,
    StepRecords,
    StepState,
)
from oncegate.stores.sqlite import SqliteStore
from oncegate.stores.sqlite.session import SqliteSession
from oncegate.testing import (
    ArmedCrashPoints,
    CrashReached,
    Faults,
    Forked,
    ManualClock,
    faulty,
    wait_until,
)
from oncegate.testing.waiting import DEADLINE_SECONDS


class Stall:
    """Holds the next commit until it is released, so that others arrive meanwhile."""

    def __init__(self, faults: Faults) -> None:
        self._entered = threading.Event()
        self._release = threading.Event()
        faults.before_commit = self._hold

    def _hold(self) -> None:
        self._entered.set()
        assert self._release.wait(DEADLINE_SECONDS), "the test did not release its stall"

    def wait_entered(self) -> None:
        assert self._entered.wait(DEADLINE_SECONDS), "no commit came"

    def release(self) -> None:
        self._release.set()


class Bench:
    """A group commit on a real ledger behind a faulty store, with threads to call it from."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._others = set(threading.enumerate())  # an earlier test may have left some
        self.faults = Faults()
        self.store = SqliteStore(path)
        self._opened: list[GroupCommit] = []
        self.threads = ThreadPoolExecutor(64)

    def writers(self) -> list[str]:
        """The writer threads that run now and did not before."""
        names = [thread.name for thread in threading.enumerate() if thread not in self._others]
        return [name for name in names if name.startswith("oncegate-writer")]

    def commits(self, **options: Any) -> GroupCommit:
        opened = GroupCommit(faulty(self.store, self.faults), **options)
        self._opened.append(opened)
        return opened

    def submit(self, commits: GroupCommit, operation: Operation[Any]) -> Future[Any]:
        return self.threads.submit(commits.submit, operation)

    def labels(self, *states: State) -> set[str]:
        with self.store.look() as session:
            return {entry.label for entry in session.entries(EntryFilter(states), None, 10_000)}

    def close(self) -> None:
        self.threads.shutdown()
        for commits in self._opened:
            commits.close()


class Interrupted(ManualClock):
    """A person's interrupt arrives while it is read."""

    is_due = False

    def ticks_ms(self) -> int:
        if self.is_due:
            self.is_due = False
            raise KeyboardInterrupt
        return super().ticks_ms()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    opened = Bench(tmp_path / "ledger.db")
    yield opened
    opened.close()


def reserve(name: str, **changes: Any) -> Reserve:
    key = derive_key("", "orders", "{id}", (name,)).digest
    wanted = {"label": name, "fingerprint": b"content", "body": b"{}", "received_at_ms": 1}
    limits = {"lease_ms": 20_000, "attempts_max": 8, "token": hash(name) % 2**62}
    return Reserve(Reservation(key=key, tenant="", surface="orders", **{**wanted, **limits, **changes}))


def settle(claim: Reserved, *writes: Statement, reason: str | None = None) -> Settle:
    ended = Settlement(*claim.claim, State.COMMITTED, 1, "test", b"1", reason, writes=writes)
    return Settle(ended)


async def perform_all(commits: GroupCommit, operations: Sequence[Operation[Any]]) -> list[Any]:
    tasks = [commits.submit_async(operation) for operation in operations]
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), DEADLINE_SECONDS)


# --- who shares a batch ----------------------------------------------------------------------------


def test_operations_that_arrive_during_a_commit_form_one_batch(bench: Bench) -> None:
    """Threads and tasks that come while a commit is under way meet in the next one, all in it."""
    commits, stall = bench.commits(inline=False), Stall(bench.faults)
    first = bench.submit(commits, reserve("first"))
    stall.wait_entered()

    threads = [bench.submit(commits, reserve(f"thread-{number}")) for number in range(20)]
    tasks = bench.threads.submit(
        asyncio.run, perform_all(commits, [reserve(f"task-{number}") for number in range(30)])
    )
    wait_until(lambda: commits._writers.waiting == 51, what="everybody in the queue")
    stall.release()

    answers = [first.result(), *(thread.result() for thread in threads), *tasks.result()]
    assert [answer.decision for answer in answers] == [Decision.RUN] * 51
    assert bench.faults.sizes("reserve") == [1, 50]
    assert bench.faults.units == 2


def test_answers_come_only_after_their_commit(bench: Bench) -> None:
    """Nobody in a batch is answered while its commit is still under way."""
    commits, stall = bench.commits(), Stall(bench.faults)
    waiting = [bench.submit(commits, reserve(f"e{number}")) for number in range(5)]
    stall.wait_entered()

    assert not any(call.done() for call in waiting)
    assert bench.labels() == set()

    stall.release()
    assert [call.result().decision for call in waiting] == [Decision.RUN] * 5
    assert len(bench.labels()) == 5


def test_same_key_from_threads_and_tasks_in_one_batch_has_one_winner(bench: Bench) -> None:
    """Twenty arrivals of one event, from threads and tasks at once, run it once."""
    commits, stall = bench.commits(inline=False), Stall(bench.faults)
    bench.submit(commits, reserve("first"))
    stall.wait_entered()
    threads = [bench.submit(commits, reserve("same", token=number)) for number in range(10)]
    tasks = bench.threads.submit(
        asyncio.run, perform_all(commits, [reserve("same", token=100 + n) for n in range(10)])
    )
    wait_until(lambda: commits._writers.waiting == 21, what="everybody in the queue")
    stall.release()

    decisions = [thread.result().decision for thread in threads]
    decisions += [answer.decision for answer in tasks.result()]
    assert sorted(d.value for d in decisions) == ["busy"] * 19 + ["run"]


def test_lone_operation_is_committed_by_its_own_caller(bench: Bench) -> None:
    """With nobody else about, a thread and a task each commit for themselves: no writer is started."""
    commits, committers = bench.commits(clock=ManualClock()), []  # on which every commit is quick
    bench.faults.before_commit = lambda: committers.append(threading.current_thread())

    commits.submit(reserve("thread"))
    asyncio.run(perform_all(commits, [reserve("task")]))

    assert committers == [threading.current_thread()] * 2
    assert not bench.writers()


class Openings(SqliteStore):
    """Notes which thread opens each session."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.openers: list[threading.Thread] = []

    def connect(self) -> SqliteSession:
        self.openers.append(threading.current_thread())
        return super().connect()


def test_loop_never_opens_a_session_itself(bench: Bench) -> None:
    """Opening may wait for another process; what comes after it, tasks commit for themselves."""
    store, committers = Openings(bench.path), []
    commits = GroupCommit(faulty(store, bench.faults), clock=ManualClock())
    bench.faults.before_commit = lambda: committers.append(threading.current_thread())

    async def ask_thrice() -> None:
        for number in range(3):
            await perform_all(commits, [reserve(f"{number}")])

    with contextlib.closing(commits):
        asyncio.run(ask_thrice())

    assert len(store.openers) == 1
    assert store.openers != [threading.current_thread()]
    assert committers[1:] == [threading.current_thread()] * 2


def test_interrupt_between_the_clock_and_the_commit_keeps_no_turn(bench: Bench) -> None:
    """Given an interrupt while a loop reads the time; then the next caller is answered."""
    clock = Interrupted()
    commits = bench.commits(clock=clock)
    commits.submit(reserve("before"))
    clock.is_due = True

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(commits.submit_async(reserve("interrupted")))

    assert commits.submit(reserve("after")).decision is Decision.RUN


def test_gate_lets_go_of_event_loops_that_are_over(bench: Bench) -> None:
    """A program may run one loop after the other; what belonged to each is not kept with it."""
    commits, loops = bench.commits(), []

    async def ask(number: int) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await perform_all(commits, [reserve(f"{number}-{place}") for place in range(3)])

    for number in range(5):
        asyncio.run(ask(number))
    gc.collect()

    assert [loop() is None for loop in loops[:4]] == [True] * 4


def test_large_crowd_is_split_into_bounded_batches(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait, one commit takes no more than its limit, and all are served."""
    monkeypatch.setattr(writer_threads, "BATCH_MAX", 7)
    commits = bench.commits()

    answers = asyncio.run(perform_all(commits, [reserve(f"e{number}") for number in range(40)]))

    assert [answer.decision for answer in answers] == [Decision.RUN] * 40
    assert bench.faults.sizes("reserve") == [7, 7, 7, 7, 7, 5]


def test_operations_of_several_kinds_share_a_commit(bench: Bench) -> None:
    """Reservations, steps and settlements of different events are one unit."""
    commits = bench.commits()
    claims = [commits.submit(reserve(f"e{number}")) for number in range(4)]
    before = bench.faults.units
    step = StepRecord("s", StepState.STARTED, "d")
    mixed: list[Operation[Any]] = [
        settle(claims[0]),
        reserve("new"),
        RecordProgress(StepRecords(*claims[1].claim, (step,), 1)),
        settle(claims[2]),
        reserve("e3"),
    ]

    answers = asyncio.run(perform_all(commits, mixed))

    assert bench.faults.units == before + 1
    assert [answers[0], answers[2], answers[3]] == [True, True, True]
    assert [answers[1].decision, answers[4].decision] == [Decision.RUN, Decision.BUSY]


# --- who fails alone -------------------------------------------------------------------------------

BAD_WRITES: dict[str, Statement] = {
    "no such table": ("INSERT INTO nowhere VALUES (1)", ()),
    "no SQL": ("BOOK A SLOT", ()),
    "two statements": ("DELETE FROM booking; DELETE FROM booking", ()),
    "a constraint": ("INSERT INTO booking VALUES ('taken')", ()),
    "a constraint that rolls back": ("INSERT OR ROLLBACK INTO booking VALUES ('taken')", ()),
    "too few values": ("INSERT INTO booking VALUES (?)", ()),
    "a value of no SQL type": ("INSERT INTO booking VALUES (?)", (object(),)),
    "an end of the transaction": ("COMMIT", ()),
    "a null character": ("INSERT INTO booking VALUES ('\x00')", ()),
}
POISONOUS_WRITES: dict[str, Statement] = {
    "a number too large for SQL": ("INSERT INTO booking VALUES (?)", (2**70,)),
    "a lone surrogate": ("INSERT INTO booking VALUES (?)", ("\udc80",)),
    "a lone surrogate in the statement": ("INSERT INTO booking VALUES ('\udc80')", ()),
}


def make_booking_table(bench: Bench) -> None:
    with contextlib.closing(sqlite3.connect(bench.path)) as connection:
        connection.execute("CREATE TABLE booking (ref TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO booking VALUES ('taken')")
        connection.commit()


def run_with_neighbours(bench: Bench, bad: Callable[[Reserved], Operation[Any]]) -> list[Any]:
    """One bad operation in the middle of a batch of five; returns what each was told."""
    make_booking_table(bench)
    commits = bench.commits()
    claims = [commits.submit(reserve(f"e{number}")) for number in range(3)]
    batch: list[Operation[Any]] = [
        reserve("new-1"),
        settle(claims[0], ("INSERT INTO booking VALUES ('b-0')", ())),
        bad(claims[1]),
        settle(claims[2], ("INSERT INTO booking VALUES ('b-2')", ())),
        reserve("new-2"),
    ]
    return asyncio.run(perform_all(commits, batch))


def check_only_the_bad_one_failed(bench: Bench, answers: list[Any]) -> None:
    assert [answers[0].decision, answers[4].decision] == [Decision.RUN] * 2
    assert [answers[1], answers[3]] == [True, True]
    assert isinstance(answers[2], Exception)
    assert bench.labels(State.COMMITTED) == {"e0", "e2"}
    assert bench.labels(State.IN_FLIGHT) == {"e1", "new-1", "new-2"}
    with contextlib.closing(sqlite3.connect(bench.path)) as connection:
        rows = connection.execute("SELECT ref FROM booking ORDER BY ref").fetchall()
    assert rows == [("b-0",), ("b-2",), ("taken",)]


@pytest.mark.parametrize("name", BAD_WRITES)
def test_refused_write_fails_only_its_own_caller(bench: Bench, name: str) -> None:
    """A business write that the database refuses is undone alone; its neighbours are committed."""
    answers = run_with_neighbours(bench, lambda claim: settle(claim, BAD_WRITES[name]))

    check_only_the_bad_one_failed(bench, answers)
    assert isinstance(answers[2], StoreRejected)


@pytest.mark.parametrize("name", POISONOUS_WRITES)
def test_write_that_cannot_be_bound_fails_only_its_own_caller(bench: Bench, name: str) -> None:
    """A value that SQLite cannot take is as refused as any other, and harms no neighbour."""
    answers = run_with_neighbours(bench, lambda claim: settle(claim, POISONOUS_WRITES[name]))

    check_only_the_bad_one_failed(bench, answers)
    assert isinstance(answers[2], StoreRejected)


def test_several_bad_writes_in_one_batch_do_not_end_the_writer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused write beside one that cannot be bound: both are told, and the next batch is served."""
    monkeypatch.setattr(group_commit, "ANSWER_WAIT_SECONDS", DEADLINE_SECONDS / 4)
    monkeypatch.setattr(group_commit, "WATCH_SECONDS", 0.1)
    make_booking_table(bench)
    commits = bench.commits(inline=False)
    claims = [commits.submit(reserve(f"e{number}")) for number in range(2)]
    refused, poisonous = BAD_WRITES["no SQL"], POISONOUS_WRITES["a number too large for SQL"]

    answers = asyncio.run(perform_all(commits, [settle(claims[0], refused), settle(claims[1], poisonous)]))

    assert isinstance(answers[0], StoreRejected)
    assert isinstance(answers[1], Exception)
    assert commits.submit(reserve("next")).decision is Decision.RUN


def test_unexpected_error_reaches_a_lone_task(bench: Bench) -> None:
    """Whatever goes wrong with a lone operation, its task is told."""
    commits = bench.commits()

    async def perform_lone() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        return await asyncio.wait_for(
            commits.submit_async(Broken(ValueError("unexpected"))), DEADLINE_SECONDS
        )

    with pytest.raises(ValueError, match="unexpected"):
        asyncio.run(perform_lone())


class Broken(Operation[Any]):
    """An operation that raises its request instead of running."""

    @classmethod
    def run(cls, session: Session, operations: Sequence[Any]) -> Sequence[Any]:
        raise operations[0].request


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), MemoryError(), RecursionError()])
def test_error_of_any_kind_does_not_end_the_writer(bench: Bench, error: BaseException) -> None:
    """A batch that dies of something nobody expected is undone and told; the next one is served."""
    commits = bench.commits(inline=False)

    with pytest.raises(type(error)):
        commits.submit(Broken(error))

    assert commits.submit(reserve("next")).decision is Decision.RUN


def test_batch_that_dies_before_its_commit_leaves_nothing(bench: Bench) -> None:
    """An error at the last moment before the commit undoes the batch, and the writer goes on."""
    commits = bench.commits(inline=False, crashpoints=ArmedCrashPoints.raising("commit.before"))

    with pytest.raises(CrashReached):
        commits.submit(reserve("undone"))

    assert commits.submit(reserve("next")).decision is Decision.RUN
    assert bench.labels() == {"next"}


# --- limits ----------------------------------------------------------------------------------------


def test_store_that_is_down_refuses_everybody_and_recovers(bench: Bench) -> None:
    """While the store is down all are told, nothing is run, and nothing has to be restarted afterwards."""
    commits = bench.commits()
    commits.submit(reserve("before"))
    bench.faults.down = True

    with pytest.raises(StoreUnavailable):
        commits.submit(reserve("thread"))
    answers = asyncio.run(perform_all(commits, [reserve(f"task-{number}") for number in range(5)]))
    bench.faults.down = False

    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert bench.labels() == {"before"}
    assert commits.submit(reserve("after")).decision is Decision.RUN


def test_gate_runs_nothing_while_the_store_is_down(bench: Bench) -> None:
    """Never fail open: without a ledger no handler is called, from a thread or from a task (I19)."""
    gate, ran = Gate(store=faulty(bench.store, bench.faults)), []
    gate.handler("orders", key="{id}")(lambda event, once: ran.append(event["id"]))
    bench.faults.down = True

    for number in range(3):
        with pytest.raises(StoreUnavailable):
            gate.admit_sync("orders", {"id": number})
        with pytest.raises(StoreUnavailable):
            asyncio.run(gate.admit("orders", {"id": number}))
    assert ran == []

    bench.faults.down = False
    gate.admit_sync("orders", {"id": 0})
    gate.close()
    assert ran == [0]


def test_queue_refuses_beyond_its_limit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many waiting as may wait, the next one is refused at once; the others are served."""
    monkeypatch.setattr(writer_threads, "WAITING_MAX", 6)
    commits, stall = bench.commits(inline=False), Stall(bench.faults)
    first = bench.submit(commits, reserve("first"))
    stall.wait_entered()
    waiting = [bench.submit(commits, reserve(f"e{number}")) for number in range(5)]
    wait_until(lambda: commits._writers.waiting == 6, what="a full queue")

    with pytest.raises(StoreUnavailable, match="try again later"):
        commits.submit(reserve("one too many"))
    refused = asyncio.run(perform_all(commits, [reserve("a"), reserve("b")]))
    stall.release()

    assert [type(answer) for answer in refused] == [StoreUnavailable] * 2
    assert [call.result().decision for call in [first, *waiting]] == [Decision.RUN] * 6
    assert bench.labels() == {"first", *(f"e{number}" for number in range(5))}


def test_thread_does_not_wait_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that never answers leaves its caller with StoreUnknown, after a limit."""
    monkeypatch.setattr(group_commit, "ANSWER_WAIT_SECONDS", 0.05)
    commits, stall = bench.commits(inline=False), Stall(bench.faults)

    with pytest.raises(StoreUnknown):
        commits.submit(reserve("stuck"))

    stall.release()


def test_task_does_not_wait_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that never answers leaves a task with StoreUnknown too, after the same limit."""
    monkeypatch.setattr(group_commit, "ANSWER_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(group_commit, "WATCH_SECONDS", 0.02)
    commits, stall = bench.commits(inline=False), Stall(bench.faults)

    (answer,) = asyncio.run(perform_all(commits, [reserve("stuck")]))

    stall.release()
    assert isinstance(answer, StoreUnknown)


def test_batch_does_not_wait_for_ever_for_a_handlers_transaction(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that keeps its transaction open makes the others busy, not stuck."""
    monkeypatch.setattr(group_commit, "TURN_WAIT_SECONDS", 0.05)
    commits = bench.commits()

    with commits.transaction():
        with pytest.raises(StoreBusy):
            commits.submit(reserve("meanwhile"))
        with pytest.raises(StoreBusy), commits.transaction():
            raise AssertionError("two transactions at once")

    assert commits.submit(reserve("afterwards")).decision is Decision.RUN


def test_transaction_that_raises_gives_the_turn_back(bench: Bench) -> None:
    """A handler's transaction that fails is undone, and the next writer goes on."""
    commits = bench.commits()

    def write_and_fail(session: Session) -> None:
        session.reserve([reserve("undone").request])
        raise ValueError("handler")

    with pytest.raises(ValueError, match="handler"), commits.transaction() as session:
        write_and_fail(session)

    assert commits.submit(reserve("next")).decision is Decision.RUN
    assert bench.labels() == {"next"}


# --- ends ------------------------------------------------------------------------------------------


def test_closing_finishes_what_waits(bench: Bench) -> None:
    """What was accepted before the close is committed and answered; what comes after is refused."""
    commits, stall = bench.commits(inline=False), Stall(bench.faults)
    first = bench.submit(commits, reserve("first"))
    stall.wait_entered()
    waiting = [bench.submit(commits, reserve(f"e{number}")) for number in range(10)]
    wait_until(lambda: commits._writers.waiting == 11, what="everybody in the queue")

    closing = bench.threads.submit(commits.close)
    wait_until(lambda: commits._closed, what="the close")
    stall.release()

    closing.result(DEADLINE_SECONDS)
    assert [call.result().decision for call in [first, *waiting]] == [Decision.RUN] * 11
    assert len(bench.labels()) == 11
    with pytest.raises(StoreUnavailable, match="closed"):
        commits.submit(reserve("late"))
    with pytest.raises(StoreUnavailable, match="closed"):
        asyncio.run(commits.submit_async(reserve("late")))


def test_closing_leaves_no_thread_and_no_file_open(bench: Bench) -> None:
    """After the close the writer is gone and the ledger is one file again."""
    commits = bench.commits(inline=False)
    commits.submit(reserve("e"))

    commits.close()
    commits.close()

    assert not bench.writers()
    assert [file.name for file in bench.path.parent.iterdir()] == [bench.path.name]


def test_task_that_asked_just_before_the_close_is_answered(bench: Bench) -> None:
    """Tasks whose operations are gathered but not yet queued are served or refused, never forgotten."""
    commits = bench.commits(inline=False)
    commits.submit(reserve("starts the writer"))

    async def close_between() -> list[Any]:
        tasks = [asyncio.create_task(commits.submit_async(reserve(f"e{n}"))) for n in range(2)]
        await asyncio.sleep(0)  # both have asked now; their loop has not handed them over yet
        commits.close()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), DEADLINE_SECONDS)

    answers = asyncio.run(close_between())

    assert all(isinstance(answer, (Reserved, StoreUnavailable)) for answer in answers)
    assert not commits._units._idle, "a session was opened after the close"


def test_closed_event_loop_does_not_hang_the_writer(bench: Bench) -> None:
    """A loop that ended while its task's operation was being committed is passed over."""
    commits, stall = bench.commits(inline=False), Stall(bench.faults)

    async def ask_and_leave() -> None:
        asked = asyncio.create_task(commits.submit_async(reserve("abandoned")))
        await asyncio.to_thread(stall.wait_entered)
        asked.cancel()

    bench.threads.submit(asyncio.run, ask_and_leave()).result(DEADLINE_SECONDS)
    stall.release()

    assert commits.submit(reserve("next")).decision is Decision.RUN
    assert bench.labels() == {"abandoned", "next"}


def test_cancelled_task_does_not_disturb_its_batch(bench: Bench) -> None:
    """A task that no longer wants its answer takes nothing from the others of its batch."""
    commits, stall = bench.commits(inline=False), Stall(bench.faults)

    async def cancel_one() -> list[Any]:
        tasks = [asyncio.create_task(commits.submit_async(reserve(f"e{n}"))) for n in range(3)]
        await asyncio.to_thread(stall.wait_entered)
        tasks[1].cancel()
        stall.release()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(cancel_one())

    assert [type(answer) for answer in answers] == [Reserved, asyncio.CancelledError, Reserved]


def test_loops_that_take_turns_in_one_thread_gather_apart(bench: Bench) -> None:
    """A loop that stops before its operations were handed over keeps them; another's are its own."""
    commits = bench.commits(inline=False)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def ask(label: str) -> Reserved:
        return await asyncio.wait_for(commits.submit_async(reserve(label)), DEADLINE_SECONDS)

    with contextlib.closing(first), contextlib.closing(second):
        asked = first.create_task(commits.submit_async(reserve("first")))
        first.call_soon(first.stop)
        first.run_forever()  # one turn of it: the task has asked, nothing is on its way
        answers = [second.run_until_complete(ask("second")), first.run_until_complete(asked)]

    assert [answer.decision for answer in answers] == [Decision.RUN] * 2
    assert bench.labels() == {"first", "second"}


def one_turn(loop: asyncio.AbstractEventLoop) -> None:
    """Runs what is due now, and stops."""
    loop.call_soon(loop.stop)
    loop.run_forever()


@contextlib.contextmanager
def running_elsewhere(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Goes on with a loop in a thread of its own."""
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield
    loop.call_soon_threadsafe(loop.stop)
    thread.join(DEADLINE_SECONDS)


def test_thread_whose_loop_went_on_in_another_asks_from_a_loop_again(bench: Bench) -> None:
    """Given a loop that asked here and runs elsewhere; then the next loop of this thread is answered."""
    commits = bench.commits()
    moved = asyncio.new_event_loop()
    asked = moved.create_task(commits.submit_async(reserve("moved")))
    one_turn(moved)  # the task has asked, nothing is on its way

    with contextlib.closing(moved), running_elsewhere(moved):
        wait_until(asked.done)
        answers = asyncio.run(perform_all(commits, [reserve("a"), reserve("b")]))

    assert [answer.decision for answer in answers] == [Decision.RUN] * 2
    assert not commits._gathered_here


def test_thread_asks_from_a_loop_while_its_former_one_begins_elsewhere(bench: Bench) -> None:
    """The same, before the former loop has handed over what it gathered here."""
    commits = bench.commits()
    moved, begun, go_on = asyncio.new_event_loop(), threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait(DEADLINE_SECONDS)

    moved.call_soon(moved.call_soon, hold)  # in its next turn, before what it gathers in this one
    asked = moved.create_task(commits.submit_async(reserve("moved")))
    one_turn(moved)
    with contextlib.closing(moved), running_elsewhere(moved):
        assert begun.wait(DEADLINE_SECONDS)
        answers = asyncio.run(perform_all(commits, [reserve("a"), reserve("b")]))
        go_on.set()
        wait_until(asked.done)

    assert [answer.decision for answer in (*answers, asked.result())] == [Decision.RUN] * 3


def test_loop_closed_before_it_handed_over_is_not_kept(bench: Bench) -> None:
    """What it gathered has nobody to be told; the next loop that asks lets go of it."""
    commits = bench.commits()
    loop = asyncio.new_event_loop()
    asked = loop.create_task(commits.submit_async(reserve("never")))
    one_turn(loop)
    asked.get_coro().close()
    loop.close()

    asyncio.run(perform_all(commits, [reserve("next")]))

    assert loop not in commits._gathered
    assert all(one.loop is not loop for one in commits._gathered_here.values())


# --- several processes -----------------------------------------------------------------------------


def test_two_processes_on_one_file_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """Two processes, four threads each, the same sixty events: every effect happens once."""
    path = tmp_path / "ledger.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE effect (ref TEXT, worker TEXT)")

    def work(worker: str) -> int:
        gate = Gate(f"sqlite:///{path}", replay_cache_max=1)

        @gate.handler("orders", key="{id}", on_busy="wait")
        def take(event: dict[str, Any], once: Any) -> str:
            once.commit(writes=[("INSERT INTO effect VALUES (?, ?)", (event["id"], worker))])
            return str(event["id"])

        def deliver(number: int) -> str:
            return str(admitted(gate, {"id": f"e{number}"}))

        with ThreadPoolExecutor(4) as threads:
            values = list(threads.map(deliver, range(60)))
        gate.close()
        return len(set(values))

    with Forked(lambda: work("one")) as one, Forked(lambda: work("two")) as two:
        assert (one.answer(), two.answer()) == (60, 60)

    with contextlib.closing(sqlite3.connect(path)) as connection:
        refs = [ref for (ref,) in connection.execute("SELECT ref FROM effect")]
    assert sorted(refs) == sorted(f"e{number}" for number in range(60))


def admitted(gate: Gate, event: dict[str, Any]) -> Any:
    """The event's value, however often the other process is in the way."""
    found: list[Any] = []

    def deliver() -> bool:
        with contextlib.suppress(StoreBusy):
            found.append(gate.admit_sync("orders", event).result())
        return bool(found)

    wait_until(deliver)
    return found[0]


def test_ticks_of_the_gate_are_the_ledgers(bench: Bench) -> None:
    """The group commit's own clock decides nothing about a claim: leases are the session's."""
    clock = ManualClock()
    commits = GroupCommit(SqliteStore(bench.path, clock=clock), clock=ManualClock(ticks_ms=5))
    commits.submit(reserve("e"))
    clock.advance(30)

    assert commits.submit(reserve("e")).decision is Decision.RECOVER
    commits.close()


def test_error_of_the_gate_is_not_swallowed_by_a_batch(bench: Bench) -> None:
    """An error of ours that is no store error reaches its caller as it is."""
    commits = bench.commits()

    with pytest.raises(OncegateError, match="ours"):
        commits.submit(Broken(OncegateError("ours")))
