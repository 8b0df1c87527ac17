"""Group commit: operations that arrive while a commit is under way form the next one.

Between the gate and a store. Threads call `perform`, tasks await `perform_async`; both meet in the same
batches. A lone operation is committed by its own caller, without a hand-over to another thread, as long as
commits are quick; under load one writer thread commits whatever has gathered. There is no linger timer.

What it must never do: answer an operation before its commit, run anything on an outcome it does not know
(after StoreUnknown each operation is read back by its own token), or wait without a limit.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from oncegate.clock import Clock, SystemClock
from oncegate.crashpoints import CrashPoints
from oncegate.errors import (
    OncegateError,
    StoreBusy,
    StoreRejected,
    StoreUnavailable,
    StoreUnknown,
)
from oncegate.operations import Operation
from oncegate.store import Session, Store

BATCH_MAX: Final = 512  # keeps one commit in the tens of milliseconds
WAITING_MAX: Final = 20_000  # beyond this callers are refused instead of queued without end
ANSWER_WAIT_SECONDS: Final = 30.0  # longer than the store's own limits; then the outcome is unknown
TURN_WAIT_SECONDS: Final = 5.0  # how long a batch waits for a handler's open transaction
INLINE_COMMIT_MS_MAX: Final = 3  # a caller commits for itself only while commits are this quick

WATCH_SECONDS: Final = 5.0  # how often waiting tasks are looked at
_NO_ANSWER: Final = f"the store has not answered within {ANSWER_WAIT_SECONDS:.0f} s"

_abandoned: list[object] = []  # sessions of a parent process: closing them in a child is not safe

T = TypeVar("T")


class Completion(Protocol):
    """Where an operation's answer goes."""

    def deliver(self, answer: object, error: BaseException | None) -> None:
        """Hands over the answer or the error, exactly once."""


class Ticket:
    """An operation on its way, and who waits for it."""

    __slots__ = ("answer", "completion", "error", "operation")

    def __init__(self, operation: Operation[Any], completion: Completion) -> None:
        self.operation = operation
        self.completion = completion
        self.answer: object = None
        self.error: BaseException | None = None


class _ThreadCompletion:
    """A thread that waits."""

    __slots__ = ("_gate", "answer", "error")

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()
        self.answer: object = None
        self.error: BaseException | None = None

    def deliver(self, answer: object, error: BaseException | None) -> None:
        self.answer, self.error = answer, error
        self._gate.release()

    def wait(self) -> object:
        if not self._gate.acquire(timeout=ANSWER_WAIT_SECONDS):
            raise StoreUnknown(_NO_ANSWER)
        if self.error is not None:
            raise self.error
        return self.answer


class _TaskCompletion:
    """A task that waits in an event loop."""

    __slots__ = ("future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()

    def deliver(self, answer: object, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(answer)


class _Watch:
    """Sees to it that no task of one event loop waits for the store without a limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[_TaskCompletion, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, completion: _TaskCompletion) -> None:
        self._waiting[completion] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(WATCH_SECONDS, self._check)

    def remove(self, completion: _TaskCompletion) -> None:
        del self._waiting[completion]

    def _check(self) -> None:
        self._timer = None
        too_old = self._loop.time() - ANSWER_WAIT_SECONDS
        for completion, since in list(self._waiting.items()):
            if since < too_old:
                completion.deliver(None, StoreUnknown(_NO_ANSWER))
        if self._waiting:
            self._timer = self._loop.call_later(WATCH_SECONDS, self._check)


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
        self._guard = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._queue: queue.SimpleQueue[list[Ticket] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._gathered: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
        self._gathered_last = 0
        self._watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()
        self._session: Session | None = None
        self._spare: list[Session] = []
        self._turn = threading.Lock()  # held by whoever writes: a batch or a handler's transaction
        self._writer: threading.Thread | None = None
        self._commit_ms = 0.0
        self._closed = False

    def perform(self, operation: Operation[T]) -> T:
        """Runs an operation for a thread and returns its answer once it is durable."""
        self._check_alive()
        ticket = Ticket(operation, _Direct())
        if self._try_alone([ticket]):
            return _answer_of(ticket)  # type: ignore[return-value]
        completion = _ThreadCompletion()
        self._enqueue([Ticket(operation, completion)])
        return completion.wait()  # type: ignore[return-value]

    async def perform_async(self, operation: Operation[T]) -> T:
        """Runs an operation for a task and returns its answer once it is durable.

        What the tasks of a loop ask for in one turn of it is gathered into one batch. A claim's end does
        not wait for the next turn when its reservation found nobody else to gather with.
        """
        self._check_alive()
        loop = asyncio.get_running_loop()
        if self._gathered_last == 1 and operation.ends_claim and not self._gathered:
            ticket = Ticket(operation, _Direct())
            if self._commit_ms <= INLINE_COMMIT_MS_MAX and self._try_alone([ticket]):
                return _answer_of(ticket)  # type: ignore[return-value]
        completion = _TaskCompletion(loop)
        gathered = self._gathered.get(loop)
        if gathered is None:
            gathered = self._gathered[loop] = []
            loop.call_soon(self._flush, loop)
        gathered.append(Ticket(operation, completion))
        watch = self._watches.get(loop)
        if watch is None:
            watch = self._watches[loop] = _Watch(loop)
        watch.add(completion)
        try:
            return await completion.future  # type: ignore[no-any-return]
        finally:
            watch.remove(completion)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        tickets = self._gathered.pop(loop)
        self._gathered_last = len(tickets)
        if len(tickets) == 1 and self._commit_ms <= INLINE_COMMIT_MS_MAX and self._try_alone(tickets):
            _deliver(tickets)
            return
        try:
            self._enqueue(tickets)
        except OncegateError as error:
            for ticket in tickets:
                ticket.error = error
            _deliver(tickets)

    def _try_alone(self, tickets: list[Ticket]) -> bool:
        """Commits in the caller's own thread if nobody else writes or waits; tells whether it did."""
        if not self._inline or self._waiting or not self._turn.acquire(blocking=False):
            return False
        try:
            self._run(tickets, wait=False)
        except StoreBusy:
            return False
        finally:
            self._turn.release()
        return True

    def _enqueue(self, tickets: list[Ticket]) -> None:
        with self._guard:
            if self._waiting + len(tickets) > WAITING_MAX:
                raise StoreUnavailable(f"{self._waiting} operations wait already; try again later")
            self._waiting += len(tickets)
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="oncegate-writer", daemon=True)
                self._writer.start()
        self._queue.put(tickets)

    def _write(self) -> None:
        """The writer thread: takes what has gathered, commits it, tells the callers."""
        incoming: list[Ticket] = []
        while incoming or (incoming := self._take()):
            batch, incoming = incoming[:BATCH_MAX], incoming[BATCH_MAX:]
            self._run_in_turn(batch)
            with self._guard:
                self._waiting -= len(batch)
            _deliver(batch)
            incoming += self._take_more()

    def _run_in_turn(self, batch: list[Ticket]) -> None:
        if not self._turn.acquire(timeout=TURN_WAIT_SECONDS):
            _fail(batch, StoreBusy("a handler's transaction has been open too long; try again later"))
            return
        try:
            self._run(batch, wait=True)
        finally:
            self._turn.release()

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
        """Runs tickets in one unit and leaves an answer or an error on each.

        Raises StoreBusy only without `wait`, and nothing was done then.
        """
        started = self._clock.ticks_ms()
        try:
            self._commit(tickets, wait=wait)
        except StoreBusy as error:
            if not wait:
                raise
            _fail(tickets, error)
        except StoreRejected:
            self._run_apart(tickets)
        except StoreUnknown as error:
            self._read_back(tickets, error)
        except StoreUnavailable as error:
            self._drop_session()
            _fail(tickets, error)
        except BaseException as error:  # noqa: BLE001  whatever it is, those who wait must be told
            _fail(tickets, error)
        self._commit_ms += (self._clock.ticks_ms() - started - self._commit_ms) / 8

    def _commit(self, tickets: list[Ticket], *, wait: bool) -> None:
        session = self._open_session()
        with session.unit(wait=wait):
            if len(tickets) == 1:
                (tickets[0].answer,) = tickets[0].operation.run(session, [tickets[0].operation])
            else:
                _run_by_type(session, tickets)
            self._crashpoints.hit("commit.before")
        self._crashpoints.hit("commit.after")

    def _run_apart(self, tickets: list[Ticket]) -> None:
        """One ticket's own statement was refused: those that carry statements are run one by one."""
        if len(tickets) == 1:
            self._run_alone(tickets[0])
            return
        plain = [ticket for ticket in tickets if not ticket.operation.carries_statements]
        if plain:
            self._run(plain, wait=True)
        for ticket in tickets:
            if ticket.operation.carries_statements:
                self._run_alone(ticket)

    def _run_alone(self, ticket: Ticket) -> None:
        try:
            self._commit([ticket], wait=True)
        except StoreUnknown as error:
            self._read_back([ticket], error)
        except OncegateError as error:
            ticket.error = error

    def _read_back(self, tickets: list[Ticket], error: StoreUnknown) -> None:
        """Finds out which operations of a doubtful commit took effect.

        A commit of our own comes first: it overwrites what the doubtful one may have left half visible,
        so that "not there" stays true.
        """
        self._drop_session()
        try:
            session = self._open_session()
            with session.unit():
                session.settle_doubt()
            with session.unit():
                for ticket in tickets:
                    ticket.answer, ticket.error = ticket.operation.recall(session), None
        except OncegateError:
            _fail(tickets, error)
            return
        for ticket in tickets:
            if ticket.answer is None:
                ticket.error = StoreUnavailable("the commit failed and was undone; nothing was changed")

    def _open_session(self) -> Session:
        if self._session is None:
            self._session = self.store.connect()
        return self._session

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A transaction of its own for a handler, on a session of its own, while no batch commits."""
        self._check_alive()
        if not self._turn.acquire(timeout=TURN_WAIT_SECONDS):
            raise StoreBusy("another handler's transaction has been open too long; try again later")
        try:
            session = self._spare.pop() if self._spare else self.store.connect()
            try:
                with session.unit():
                    yield session
            except BaseException:
                session.close()
                raise
            self._spare.append(session)
        finally:
            self._turn.release()

    def _check_alive(self) -> None:
        if self._pid != os.getpid():
            # A forked child must neither use nor close what belongs to its parent.
            _abandoned.append((self._session, self._spare, self._queue))
            self._guard = threading.Lock()
            self._reset()
        if self._closed:
            raise StoreUnavailable("the gate is closed")

    def close(self) -> None:
        """Lets what waits finish, then closes the session."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if self._writer is not None:
            self._queue.put(None)
            self._writer.join(ANSWER_WAIT_SECONDS)
        with self._turn:
            self._drop_session()
            while self._spare:
                self._spare.pop().close()


class _Direct:
    """Nobody waits elsewhere: the caller reads the ticket itself."""

    def deliver(self, answer: object, error: BaseException | None) -> None:
        return


def _answer_of(ticket: Ticket) -> object:
    if ticket.error is not None:
        raise ticket.error
    return ticket.answer


def _fail(tickets: list[Ticket], error: BaseException) -> None:
    for ticket in tickets:
        ticket.error = error


def _run_by_type(session: Session, tickets: list[Ticket]) -> None:
    grouped: dict[type[Operation[Any]], list[Ticket]] = {}
    for ticket in tickets:
        grouped.setdefault(type(ticket.operation), []).append(ticket)
    for operation_type, members in grouped.items():
        answers = operation_type.run(session, [member.operation for member in members])
        for member, answer in zip(members, answers, strict=True):
            member.answer = answer


def _deliver(tickets: Sequence[Ticket]) -> None:
    """Tells threads directly and each event loop once for all its tasks."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    here = _running_loop()
    for ticket in tickets:
        completion = ticket.completion
        if isinstance(completion, _TaskCompletion) and completion.loop is not here:
            by_loop.setdefault(completion.loop, []).append(ticket)
        else:
            completion.deliver(ticket.answer, ticket.error)
    for loop, members in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver_here, members)
        except RuntimeError:
            continue  # the loop has been closed; nobody waits any more


def _deliver_here(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.completion.deliver(ticket.answer, ticket.error)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
