"""Group commit: operations that arrive while a commit is under way form the next one.

Between the gate and a store. Threads call `perform`, tasks await `perform_async`; both meet in the same
batches. A lone operation is committed by its own caller, without a hand-over to another thread, as long as
commits are quick; under load the writer threads commit whatever has gathered. There is no linger timer.

What it must never do: answer an operation before its commit, run anything on an outcome it does not know
(after StoreUnknown each operation is read back by its own token), or wait without a limit.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from oncegate.clock import Clock, SystemClock
from oncegate.crashpoints import CrashPoints
from oncegate.errors import (
    OncegateError,
    StoreBusy,
    StoreRejected,
    StoreUnavailable,
    StoreUnknown,
)
from oncegate.loopwriters import LoopWriters
from oncegate.operations import Operation
from oncegate.store import Session, Store
from oncegate.suspension import aside
from oncegate.tickets import Gathering, ThreadTicket, Ticket, Watch, by_kind, deliver, fail

BATCH_MAX: Final = 512  # keeps one commit in the tens of milliseconds
WAITING_MAX: Final = 20_000  # beyond this callers are refused instead of queued without end
ANSWER_WAIT_SECONDS: Final = 30.0  # longer than the store's own limits; then the outcome is unknown
WATCH_SECONDS: Final = 5.0  # how often waiting tasks are looked at
TURN_WAIT_SECONDS: Final = 5.0  # how long a batch waits for a handler's open transaction
FORK_WAIT_SECONDS: Final = 2.0  # how long a fork waits for a commit under way
TRANSACTIONS_MAX: Final = 32  # handlers' own transactions at once, where the store takes many writers
INLINE_PER_TURN_MAX: Final = 6  # commits in one turn of an event loop; then others have theirs
INLINE_COMMIT_MS_MAX: Final = 3  # a task commits for itself only while commits are this quick

T = TypeVar("T")


class GroupCommit:
    """One ledger's sessions, shared by every thread and task of the process."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        crashpoints: CrashPoints | None = None,
        inline: bool = True,
    ) -> None:
        self.store = store
        self._clock = clock or SystemClock()
        self._crashpoints = crashpoints or CrashPoints()
        self._inline = inline
        self._capabilities = store.capabilities
        self._closed = False
        self._reset()
        _live.add(self)

    def _reset(self) -> None:
        capabilities = self._capabilities
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._queue: queue.SimpleQueue[list[Ticket] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._gathered: dict[asyncio.AbstractEventLoop, Gathering] = {}
        self._gathered_last = 0
        self._watches: WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = WeakKeyDictionary()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWriters] = WeakKeyDictionary()
        self._idle: list[Session] = []
        self._spare: list[Session] = []
        # Held by whoever writes: a batch, and where there is one writer only, a handler's transaction.
        self._turns: threading.Lock | threading.Semaphore = (
            threading.Lock()  # many times quicker than a semaphore of one
            if capabilities.writers_max == 1
            else threading.Semaphore(capabilities.writers_max)
        )
        self._transactions = (
            self._turns if capabilities.one_writer else threading.Semaphore(TRANSACTIONS_MAX)
        )
        self._writers: list[threading.Thread] = []
        self._commit_ms = 0.0

    def perform(self, operation: Operation[T]) -> T:
        """Runs an operation for a thread and returns its answer once it is durable."""
        self._check_open()
        ticket = Ticket(operation)
        if self._try_alone([ticket]):
            return ticket.result()  # type: ignore[no-any-return]
        waiting = ThreadTicket(operation)
        self._enqueue([waiting])
        return waiting.wait(ANSWER_WAIT_SECONDS)  # type: ignore[no-any-return]

    async def perform_async(self, operation: Operation[T]) -> T:
        """Runs an operation for a task and returns its answer once it is durable.

        What the tasks of a loop ask for in one turn of it is gathered into one batch. Where the last turn
        found nobody to gather with, a few operations do not wait for the next one.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        gathering = self._gathered.get(loop)
        if gathering is None:
            watch = self._watch(loop)
            if self._gathered_last == 1 and self._may_block_loop() and watch.may_commit_here():
                ticket = Ticket(operation)
                if self._try_alone([ticket]):
                    return ticket.result()  # type: ignore[no-any-return]
            gathering = self._gather(loop, watch)
        return await gathering.add(operation)  # type: ignore[no-any-return]

    def _watch(self, loop: asyncio.AbstractEventLoop) -> Watch:
        watch = self._watches.get(loop)
        if watch is None:
            watch = Watch(loop, WATCH_SECONDS, ANSWER_WAIT_SECONDS, INLINE_PER_TURN_MAX)
            self._watches[loop] = watch
        return watch

    def _gather(self, loop: asyncio.AbstractEventLoop, watch: Watch) -> Gathering:
        """Begins to gather; what has come together by the loop's next turn is one batch."""
        gathering = self._gathered[loop] = Gathering(watch)
        watch.add(gathering)
        loop.call_soon(self._flush, loop)
        return gathering

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        tickets = self._gathered.pop(loop).tickets
        self._gathered_last = len(tickets)
        if len(tickets) == 1 and self._may_block_loop() and self._try_alone(tickets):
            deliver(tickets)
            return
        try:
            if self._capabilities.gives_way:
                self._begin_in_loop(loop, tickets)
            else:
                self._enqueue(tickets)
        except OncegateError as error:
            fail(tickets, error)
            deliver(tickets)

    def _begin_in_loop(self, loop: asyncio.AbstractEventLoop, tickets: list[Ticket]) -> None:
        self._check_open()
        writers = self._loops.get(loop)
        if writers is None:
            writers = self._loops[loop] = LoopWriters(lambda batch: self._run(batch, wait=True))
        if writers.waiting + len(tickets) > WAITING_MAX:
            raise StoreUnavailable(f"{writers.waiting} operations wait already; try again later")
        writers.add(tickets)

    def _may_block_loop(self) -> bool:
        return self._capabilities.is_local and self._commit_ms <= INLINE_COMMIT_MS_MAX

    def _try_alone(self, tickets: list[Ticket]) -> bool:
        """Commits in the caller's own thread if nobody else writes or waits; tells whether it did."""
        if not self._inline or self._waiting or not self._turns.acquire(blocking=False):
            return False
        try:
            self._run(tickets, wait=False)
        except StoreBusy:
            return False
        finally:
            self._turns.release()
        return True

    def _enqueue(self, tickets: list[Ticket]) -> None:
        with self._guard:
            self._check_open()
            if self._waiting + len(tickets) > WAITING_MAX:
                raise StoreUnavailable(f"{self._waiting} operations wait already; try again later")
            self._waiting += len(tickets)
            if not self._writers:
                self._start_writers()
            self._queue.put(tickets)

    def _start_writers(self) -> None:
        for number in range(self._capabilities.writers_max):
            name = f"oncegate-writer-{number + 1}"
            self._writers.append(threading.Thread(target=self._write, name=name, daemon=True))
            self._writers[-1].start()

    def _write(self) -> None:
        """A writer thread: takes what has gathered, commits it, tells the callers."""
        incoming: list[Ticket] = []
        while incoming or (incoming := self._take()):
            batch, incoming = incoming[:BATCH_MAX], incoming[BATCH_MAX:]
            self._run_in_turn(batch)
            with self._guard:
                self._waiting -= len(batch)
            deliver(batch)
            incoming += self._take_more()

    def _run_in_turn(self, batch: list[Ticket]) -> None:
        if not self._turns.acquire(timeout=TURN_WAIT_SECONDS):
            fail(batch, StoreBusy("a handler's transaction has been open too long; try again later"))
            return
        try:
            self._run(batch, wait=True)
        finally:
            self._turns.release()

    def _take(self) -> list[Ticket]:
        first = self._queue.get()
        if first is None:
            return []
        return first + self._take_more()

    def _take_more(self) -> list[Ticket]:
        more: list[Ticket] = []
        while True:
            try:
                tickets = self._queue.get_nowait()
            except queue.Empty:
                return more
            if tickets is None:
                self._queue.put(None)
                return more
            more += tickets

    def _run(self, tickets: list[Ticket], *, wait: bool) -> None:
        """Runs tickets and leaves an answer or an error on each.

        One unit for all where the store has one writer, else one for each kind. Raises StoreBusy only
        without `wait`, and nothing was done then.
        """
        started = self._clock.ticks_ms()
        if self._capabilities.one_writer or len(tickets) == 1:
            self._run_unit(tickets, wait=wait)
        else:
            for group in by_kind(tickets):
                self._run_unit(group, wait=wait)
        self._commit_ms += (self._clock.ticks_ms() - started - self._commit_ms) / 8

    def _run_unit(self, tickets: list[Ticket], *, wait: bool) -> None:
        try:
            self._commit(tickets, wait=wait)
        except StoreBusy as error:
            if not wait:
                raise
            fail(tickets, error)
        except StoreRejected as error:
            self._run_apart(tickets, error)
        except StoreUnknown as error:
            self._read_back(tickets, error)
        except BaseException as error:  # noqa: BLE001  whatever it is, those who wait must be told
            self._run_after_fault(tickets, error)

    def _run_after_fault(self, tickets: list[Ticket], error: BaseException) -> None:
        """Something that is no error of the store's: one operation must not spoil its neighbours."""
        if len(tickets) == 1 or isinstance(error, OncegateError) or not isinstance(error, Exception):
            fail(tickets, error)
            return
        for ticket in tickets:
            self._run_unit([ticket], wait=True)

    def _commit(self, tickets: list[Ticket], *, wait: bool) -> None:
        """Runs tickets in one unit, on an idle session; one that failed is not used again."""
        session = self._take_session(self._idle)
        keep = False
        try:
            single = not self._capabilities.one_writer
            with session.unit(wait=wait, single=single):
                _run_on(session, tickets)
                self._crashpoints.hit("commit.before")
            keep = True
        except (StoreBusy, StoreRejected):
            keep = True
            raise
        finally:
            if keep and not self._closed:
                self._idle.append(session)
            else:
                session.close()
        self._crashpoints.hit("commit.after")

    def _take_session(self, sessions: list[Session]) -> Session:
        try:
            return sessions.pop()
        except IndexError:
            return aside(self.store.connect)

    def _run_apart(self, tickets: list[Ticket], error: StoreRejected) -> None:
        """One ticket's own statement was refused: those that carry statements are run one by one."""
        if len(tickets) == 1:
            tickets[0].error = error
            return
        plain = [ticket for ticket in tickets if not ticket.operation.carries_statements]
        if len(plain) == len(tickets):
            for ticket in tickets:
                self._run_unit([ticket], wait=True)
            return
        if plain:
            self._run_unit(plain, wait=True)
        for ticket in tickets:
            if ticket.operation.carries_statements:
                self._run_unit([ticket], wait=True)

    def _read_back(self, tickets: list[Ticket], error: StoreUnknown) -> None:
        """Finds out which operations of a doubtful commit took effect.

        A commit of our own comes first: it overwrites what the doubtful one may have left half visible,
        so that "not there" stays true.
        """
        try:
            self._recall(tickets)
        except Exception:  # noqa: BLE001  whatever keeps us from reading, the outcome stays unknown
            fail(tickets, error)
            return
        for ticket in tickets:
            if ticket.answer is None:
                ticket.error = StoreUnavailable("the commit failed and was undone; nothing was changed")

    def _recall(self, tickets: list[Ticket]) -> None:
        session = aside(self.store.connect)
        try:
            with session.unit():
                session.settle_doubt()
            with session.unit():
                for ticket in tickets:
                    ticket.answer, ticket.error = ticket.operation.recall(session), None
        finally:
            session.close()

    @contextmanager
    def transaction(self, *, wait: bool = True) -> Iterator[Session]:
        """A transaction of its own for a handler; where there is one writer, while no batch commits.

        Without `wait`, raises StoreBusy unless it can begin without blocking, be it for a moment.
        """
        self._check_open()
        if not wait and (self._capabilities.one_writer or not self._spare):
            raise StoreBusy("no transaction is ready at once")
        if not self._transactions.acquire(timeout=TURN_WAIT_SECONDS if wait else 0):
            raise StoreBusy("other handlers' transactions have been open too long; try again later")
        try:
            session = self._take_session(self._spare)
            try:
                with session.unit():
                    yield session
            except BaseException:
                session.close()
                raise
            self._spare.append(session)
        finally:
            self._transactions.release()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the gate is closed")
        if self._pid != here.pid:
            raise StoreUnavailable(
                "this process was forked while a transaction was open; start it anew instead"
            )

    def close(self) -> None:
        """Lets what waits finish, then closes the sessions."""
        if self._closed or self._pid != os.getpid():
            return
        with self._guard:
            self._closed = True
            for _ in self._writers:
                self._queue.put(None)
        for writer in self._writers:
            writer.join(ANSWER_WAIT_SECONDS)
        self._close_sessions()

    def _close_sessions(self) -> None:
        for sessions in (self._idle, self._spare):
            while sessions:
                sessions.pop().close()

    def before_fork(self) -> bool:
        """Waits for commits under way and closes every session: neither process may inherit one."""
        if any(writers.is_busy for writers in self._loops.values()):
            return False  # they go on when the loop does, which may be after the fork only
        writers = self._capabilities.writers_max
        held = 0
        while held < writers and self._turns.acquire(timeout=FORK_WAIT_SECONDS):
            held += 1
        if held == writers:
            self._close_sessions()
            return True
        for _ in range(held):
            self._turns.release()
        return False

    def after_fork_in_parent(self) -> None:
        """Goes on."""
        for _ in range(self._capabilities.writers_max):
            self._turns.release()

    def after_fork_in_child(self) -> None:
        """Begins anew, with threads and sessions of its own."""
        self._reset()


def _run_on(session: Session, tickets: list[Ticket]) -> None:
    groups = [tickets] if len(tickets) == 1 else by_kind(tickets)
    for members in groups:
        operations = [member.operation for member in members]
        answers = operations[0].run(session, operations)
        for member, answer in zip(members, answers, strict=True):
            member.answer = answer


class Process:
    """The process this is, known without asking the system each time."""

    pid = os.getpid()


here: Final = Process()
_live: WeakSet[GroupCommit] = WeakSet()
_paused: list[GroupCommit] = []


def _before_fork() -> None:
    mine = [commits for commits in _live if commits._pid == os.getpid()]
    _paused.extend(commits for commits in mine if commits.before_fork())


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().after_fork_in_parent()


def _after_fork_in_child() -> None:
    here.pid = os.getpid()
    while _paused:
        _paused.pop().after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
