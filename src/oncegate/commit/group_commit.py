"""Group commit: operations that arrive while a commit is under way form the next one.

Between the gate and a store. Threads call `submit`, tasks await `submit_async`; both meet in the same
batches. A lone operation is committed by its own caller, without a hand-over to another thread, as long as
commits are quick; what many tasks ask for, their loop writes down and another thread commits; what many
threads ask for, the writer threads take as it has gathered. There is no linger timer.

What it must never do: answer an operation before its commit, run anything on an outcome it does not know
(after StoreUnknown each operation is read back by its own token), or wait without a limit.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any, Final, TypeVar, cast

from oncegate.clock import Clock, SystemClock
from oncegate.commit.batching import Batching, share_out
from oncegate.commit.forks import here, holders
from oncegate.commit.greenlet_bridge import Exclusive
from oncegate.commit.loop_batches import Committer, LoopBatches
from oncegate.commit.operations import Operation
from oncegate.commit.pending import (
    LoopBatch,
    Pending,
    Semaphore,
    ThreadPending,
    TimeoutWatcher,
    deliver,
    fail,
    forget_closed,
)
from oncegate.commit.transactions import Finish, OpenBatch, Transactions
from oncegate.commit.writer_threads import WAITING_MAX, PlacedWriters, WriterThreads
from oncegate.crashpoints import CrashPoints
from oncegate.errors import OncegateError, StoreBusy, StoreUnavailable
from oncegate.store import ClaimStore, Session, Store

ANSWER_WAIT_SECONDS: Final = 30.0  # longer than the store's own limits; then the outcome is unknown
WATCH_SECONDS: Final = 5.0  # how often waiting tasks are looked at
TURN_WAIT_SECONDS: Final = 5.0  # how long a batch waits for a handler's open transaction
STRANDED_LOOK_SECONDS: Final = 0.5  # how often whoever waits looks for what a loop kept that is over
WRITERS_OF_A_PLACE: Final = 2  # for each ledger of a store that is several
FORK_WAIT_SECONDS: Final = 2.0  # how long a fork waits for a commit under way
OWN_WRITERS: Final = (
    8  # transactions of one event each; the server flushes those that commit at once together
)
TRANSACTIONS_MAX: Final = 32  # handlers' own transactions at once, where the store takes many writers
INLINE_PER_TURN_MAX: Final = 16  # commits in one turn of an event loop; then others have theirs
INLINE_TURN_MS_MAX: Final = 4  # and as long as they may take together, but for the last of them
INLINE_COMMIT_MS_MAX: Final = 3  # a task commits for itself only while commits are this quick

T = TypeVar("T")


class GroupCommit:
    """One ledger's sessions, shared by every thread and task of the process."""

    def __init__(
        self,
        store: ClaimStore,
        *,
        clock: Clock | None = None,
        crashpoints: CrashPoints | None = None,
        inline: bool = True,
    ) -> None:
        # Operations of other facets come from features that have asked `store.require` for them.
        self.store = cast("Store", store)
        self._clock = clock or SystemClock()
        self._crashpoints = crashpoints or CrashPoints()
        self._inline = inline
        self._capabilities = store.capabilities
        self._closed = False
        self._reset()
        holders.add(self)

    def _reset(self) -> None:
        capabilities = self._capabilities
        self.pid = os.getpid()
        self._gathered: dict[asyncio.AbstractEventLoop, LoopBatch] = {}
        self._gathered_here: dict[int, LoopBatch] = {}  # by thread
        self._gathered_last = 0
        self._watches: dict[asyncio.AbstractEventLoop, TimeoutWatcher] = {}
        self._batches: dict[asyncio.AbstractEventLoop, LoopBatches] = {}
        self._committer = Committer()
        self._units = Transactions(self.store, self._crashpoints)
        place_of = getattr(self.store, "place_of", None)  # a store of several ledgers has it
        self._sharing = Batching(self._units, one_writer=capabilities.one_writer, place_of=place_of)
        self._spare: list[Session] = []
        self._handlers: dict[Exclusive, Session] = {}  # transactions that an event loop goes on with
        # Held by whoever writes: a batch, and where there is one writer only, a handler's transaction.
        self._turns = Semaphore(capabilities.writers_max)
        self._transactions = self._turns if capabilities.one_writer else Semaphore(TRANSACTIONS_MAX)
        self._own_turns = self._turns if capabilities.one_writer else Semaphore(OWN_WRITERS)
        self._writers: WriterThreads | PlacedWriters = WriterThreads(capabilities.writers_max)
        if place_of is not None and not capabilities.one_writer:
            self._writers = PlacedWriters(WRITERS_OF_A_PLACE, partial(share_out, place_of=place_of))
        self._commit_ms = 0.0

    def submit(self, operation: Operation[T]) -> T:
        """Runs an operation for a thread and returns its answer once it is durable."""
        self._check_open()
        ticket = Pending(operation)
        if self._try_alone([ticket]):
            if ticket.error is not None:
                raise ticket.error
            return ticket.answer  # type: ignore[return-value]
        waiting = ThreadPending(operation)
        if self._own_turns is not self._turns and self._sharing.is_own(operation):
            self._sharing.apart.add([waiting], patient=False)
        else:
            self._enqueue([waiting])
        return waiting.wait(ANSWER_WAIT_SECONDS)  # type: ignore[no-any-return]

    async def submit_async(self, operation: Operation[T]) -> T:
        """Runs an operation for a task and returns its answer once it is durable."""
        asked = self.submit_nowait(operation)
        return asked.result() if isinstance(asked, Pending) else await asked  # type: ignore[no-any-return]

    def submit_nowait(self, operation: Operation[Any]) -> Pending | asyncio.Future[Any]:
        """Runs an operation for a task: a ticket that has its answer already, or what the task awaits.

        What the tasks of a loop ask for in one turn of it is gathered into one batch. Where the last turn
        found no other task to gather with, a few operations do not wait for the next one.
        """
        self._check_open()
        # Asking for the running loop is a call to the system, which is spared where it is known.
        gathering = self._gathered_here.get(get_ident())
        if gathering is not None and gathering.is_of_running_loop:
            return gathering.add(operation)
        loop = asyncio.get_running_loop()
        found = self._gathered.get(loop) or self._first_of_turn(loop, operation)
        return found if isinstance(found, Pending) else found.add(operation)

    def _first_of_turn(
        self, loop: asyncio.AbstractEventLoop, operation: Operation[Any]
    ) -> Pending | LoopBatch:
        """Commits here and now where that is best, else begins to gather."""
        watch = self._watches.get(loop) or self._new_watch(loop)
        if self._gathered_last == 1 and self._may_block_loop():
            now_ms = self._clock.ticks_ms()
            operation.loop = loop
            ticket = Pending(operation)
            if watch.may_commit_here(now_ms) and self._try_alone([ticket]):
                self._note_commit(now_ms)
                return ticket
        return self._gather(loop, watch)

    def _new_watch(self, loop: asyncio.AbstractEventLoop) -> TimeoutWatcher:
        for known in (self._watches, self._batches, self._gathered):
            forget_closed(known)
        for gathering in [one for one in list(self._gathered_here.values()) if one.loop.is_closed()]:
            self._forget_here(gathering)
        self._drop_stranded()
        watch = TimeoutWatcher(
            loop, WATCH_SECONDS, ANSWER_WAIT_SECONDS, INLINE_PER_TURN_MAX, INLINE_TURN_MS_MAX
        )
        self._watches[loop] = watch
        return watch

    def _gather(self, loop: asyncio.AbstractEventLoop, watch: TimeoutWatcher) -> LoopBatch:
        """Begins to gather; what has come together by the loop's next turn is one batch."""
        gathering = LoopBatch(watch)
        self._gathered[loop] = self._gathered_here[gathering.thread] = gathering
        watch.add(gathering)
        loop.call_soon(self._flush, loop)
        return gathering

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        gathering = self._gathered.pop(loop)
        self._forget_here(gathering)
        tickets = gathering.tickets
        self._gathered_last = len(tickets)
        if len(tickets) == 1 and self._may_block_loop():
            started = self._clock.ticks_ms()
            if self._try_alone(tickets):
                self._note_commit(started)
                deliver(tickets)
                return
        try:
            if self._inline and self._capabilities.is_local and self._capabilities.one_writer:
                self._write_in_loop(loop, tickets)
            else:
                self._enqueue(tickets)
        except OncegateError as error:
            fail(tickets, error)
            deliver(tickets)

    def _forget_here(self, gathering: LoopBatch) -> None:
        """In the thread it was begun in, which need not be the one that its loop runs in by now."""
        if self._gathered_here.get(gathering.thread) is gathering:
            self._gathered_here.pop(gathering.thread, None)

    def _write_in_loop(self, loop: asyncio.AbstractEventLoop, tickets: list[Pending]) -> None:
        shared, own = self._sharing.split(tickets)
        if shared:
            self._batches_of(loop).add(shared)
        if own:
            self._enqueue(own)

    def _batches_of(self, loop: asyncio.AbstractEventLoop) -> LoopBatches:
        self._check_open()
        batches = self._batches.get(loop)
        if batches is None:
            batches = self._batches[loop] = LoopBatches(loop, self, self._committer, self._clock)
        if batches.waiting > WAITING_MAX:
            raise StoreUnavailable(f"{batches.waiting} operations wait already; try again later")
        return batches

    def begin_batch(self, tickets: list[Pending]) -> Finish | None:
        """Writes a batch down in the caller's thread, if no other thread writes or waits.

        What is returned commits it, in any thread, and leaves an answer or an error on each ticket.
        """
        if self._closed or self._writers.waiting:
            return None
        held: list[None] = []
        begun: OpenBatch | None = None
        try:
            if self._turns.take(held) and (finish := self._units.begin(tickets)) is not None:
                begun = OpenBatch(partial(self._finish, finish))
        finally:
            if held and begun is None:
                self._turns.give_back(None)
        return begun

    def _finish(self, finish: Finish) -> None:
        started = self._clock.ticks_ms()
        try:
            finish()
        finally:
            self._turns.give_back(None)
        self._note_commit(started)

    def _note_commit(self, started_ms: int) -> None:
        """Only loops ask how long commits take: a thread that commits for itself need not tell."""
        self._commit_ms += (self._clock.ticks_ms() - started_ms - self._commit_ms) / 8

    def hand_over(self, tickets: list[Pending]) -> None:
        """Leaves tickets to the writer thread."""
        try:
            self._enqueue(tickets)
        except OncegateError as error:
            fail(tickets, error)
            deliver(tickets)

    def _may_block_loop(self) -> bool:
        """Whether a commit takes the loop a moment only: opening a session may wait for another process."""
        is_local = self._capabilities.is_local
        return is_local and self._commit_ms <= INLINE_COMMIT_MS_MAX and self._units.has_idle

    def _try_alone(self, tickets: list[Pending]) -> bool:
        """Commits in the caller's own thread if no other thread writes or waits; returns whether it did."""
        if not self._inline or self._writers.waiting:
            return False
        held: list[None] = []
        turns = self._own_turns
        if turns is not self._turns and not self._sharing.is_own(tickets[0].operation):
            turns = self._turns
        try:
            if not turns.take(held):
                return False
            self._units.run(tickets, wait=False, patient=False)
        except StoreBusy:
            return False
        finally:
            if held:
                turns.give_back(None)
        return True

    def _enqueue(self, tickets: list[Pending]) -> None:
        self._check_open()
        self._writers.add(tickets, self._run_in_turn)

    def _run_in_turn(self, batch: list[Pending]) -> list[Pending]:
        held: list[None] = []
        try:
            if self._wait_for(self._turns, held, TURN_WAIT_SECONDS):
                return self._run(batch, wait=True)
            fail(batch, StoreBusy("a handler's transaction has been open too long; try again later"))
        finally:
            if held:
                self._turns.give_back(None)
        return batch

    def _run(self, tickets: list[Pending], *, wait: bool) -> list[Pending]:
        """Runs tickets, see `Batching.run`; raises StoreBusy only without `wait`."""
        started = self._clock.ticks_ms()
        answered = self._sharing.run(tickets, wait=wait)
        self._note_commit(started)
        return answered

    @contextmanager
    def transaction(self, *, wait: bool = True, using: Exclusive | None = None) -> Iterator[Session]:
        """A transaction of its own for a handler; where there is one writer, while no batch commits.

        Without `wait`, raises StoreBusy unless it can begin without blocking, be it for a moment.
        The session's user holds `using`. If that belongs to a loop which ends, the transaction is undone.
        """
        self._check_open()
        if using is not None and using.loop is not None and using.loop not in self._watches:
            self._new_watch(using.loop)
        if not wait and (self._capabilities.one_writer or not self._spare):
            raise StoreBusy("no transaction is ready at once")
        is_listed = False
        held: list[None] = []
        try:
            if not self._wait_for(self._transactions, held, TURN_WAIT_SECONDS if wait else 0):
                raise StoreBusy("other handlers' transactions have been open too long; try again later")
            session = self._units.take(self._spare)
            try:
                with session.unit():
                    if using is not None and using.loop is not None:
                        self._handlers[using], is_listed = session, True
                    yield session
            except BaseException:
                session.close()
                raise
            self._spare.append(session)
        finally:
            # One that is not listed any more was given up, and its place with it.
            if held and (not is_listed or using is None or self._handlers.pop(using, None) is not None):
                self._transactions.give_back(None)

    def _wait_for(self, turns: Semaphore, held: list[None], seconds: float) -> bool:
        """Takes a turn or a place, within the time; one that a loop kept which is over is freed first."""
        is_ours = turns.take(held)
        while not is_ours and seconds > 0:
            self._drop_stranded()
            is_ours = turns.take(held, min(seconds, STRANDED_LOOK_SECONDS))
            seconds -= STRANDED_LOOK_SECONDS
        return is_ours

    def _drop_stranded(self) -> None:
        """Undoes open transactions of loops that are closed: no task will finish them."""
        for using, session in list(self._handlers.items()):
            if using.run_if_stranded(session.close) and self._handlers.pop(using, None) is not None:
                self._transactions.give_back(None)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the gate is closed")
        if self.pid != here.pid:
            raise StoreUnavailable(
                "this process was forked while a transaction was open; start a new process instead"
            )

    def close(self) -> None:
        """Lets what waits finish, then closes the sessions."""
        if self._closed or self.pid != os.getpid():
            return
        self._closed = True
        self._writers.close(ANSWER_WAIT_SECONDS)
        self._sharing.apart.close(ANSWER_WAIT_SECONDS)
        self._committer.close()
        self._units.close()
        self._drop_sessions()

    def _drop_sessions(self) -> None:
        self.store.close()
        self._drop_stranded()
        self._units.drop_sessions()
        while self._spare:
            self._spare.pop().close()

    def before_fork(self) -> bool:
        """Waits for commits under way and closes every session: neither process may inherit one."""
        self._drop_stranded()
        if not self._sharing.apart.wait_until_idle(FORK_WAIT_SECONDS):
            return False
        writers = self._capabilities.writers_max
        held: list[None] = []
        while len(held) < writers and self._turns.take(held, FORK_WAIT_SECONDS):
            pass
        if len(held) == writers:
            self._drop_sessions()
            return True
        for _ in held:
            self._turns.give_back(None)
        return False

    def after_fork_in_parent(self) -> None:
        """Goes on."""
        for _ in range(self._capabilities.writers_max):
            self._turns.give_back(None)

    def after_fork_in_child(self) -> None:
        """Starts again, with threads and sessions of its own."""
        self._reset()
