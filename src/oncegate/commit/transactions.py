"""Units of work on a store: tickets run in one transaction, each left with an answer or an error.

The group commit decides what is run together and when; here is what comes of it. Must never leave an
answer on a ticket whose commit is not certain: after StoreUnknown each operation is read back by its own
token. One operation's own failure must never become its neighbours'.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from oncegate.commit.greenlet_bridge import run_in_thread
from oncegate.commit.pending import Pending, by_kind, fail
from oncegate.crashpoints import CrashPoints
from oncegate.errors import (
    OncegateError,
    PartUnavailable,
    StoreBusy,
    StoreRejected,
    StoreUnavailable,
    StoreUnknown,
)
from oncegate.store import Session, Store

Finish = Callable[[], None]
_Unit = AbstractContextManager[None]


class OpenBatch:
    """A batch that is written down, and what commits it: once, and also if it was lost on its way."""

    __slots__ = ("_finish",)

    def __init__(self, finish: Finish) -> None:
        self._finish: Finish | None = finish

    def __call__(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    def __del__(self) -> None:
        """An interrupt came before it was handed over: without this no thread could ever write again."""
        self()


class Transactions:
    """Runs tickets on idle sessions; a session that failed is not used again."""

    def __init__(self, store: Store, crashpoints: CrashPoints) -> None:
        self._store = store
        self._one_writer = store.capabilities.one_writer
        self._crashpoints = crashpoints
        self._idle: list[Session] = []
        self._closed = False

    @property
    def has_idle(self) -> bool:
        """Whether a session is ready, so that none has to be opened."""
        return bool(self._idle)

    def run(self, tickets: list[Pending], *, wait: bool, patient: bool = False) -> list[Pending]:
        """Runs operations in one transaction; returns those that another transaction's lock blocks.

        Nothing of those was done. There are none where a lock is waited for: with `patient`, or where there
        is one writer. Raises StoreBusy only without `wait`, and nothing was done then.
        """
        try:
            self._commit(tickets, wait, patient)
        except BaseException as error:  # noqa: BLE001  whatever it is, those who wait must be told
            return self._tell(tickets, error, wait=wait, patient=patient)
        return []

    def begin(self, tickets: list[Pending]) -> Finish | None:
        """Runs the tickets' statements if that is possible without waiting; what is returned commits them.

        It may be called in any thread, once. Without it nothing was done: whatever was in the way is met
        again, and reported, when the operations run in another way.
        """
        if not self._idle:
            return None
        session = self._idle.pop()
        keep = False
        try:
            unit = self._begun(session, tickets)
        except StoreBusy:
            keep = True
        except Exception:  # noqa: BLE001  met again
            keep = False
        except BaseException:
            session.close()
            raise
        else:
            return lambda: self._finish(session, unit, tickets)
        self._put_back(session, keep)
        return None

    def _begun(self, session: Session, tickets: list[Pending]) -> _Unit:
        unit = session.unit(wait=False)
        unit.__enter__()
        try:
            _run_on(session, tickets)
            self._crashpoints.hit("commit.before")
        except BaseException as error:
            unit.__exit__(type(error), error, error.__traceback__)
            raise
        return unit

    def _finish(self, session: Session, unit: _Unit, tickets: list[Pending]) -> None:
        try:
            self._end(session, unit)
        except BaseException as error:  # noqa: BLE001  whatever it is, those who wait must be told
            self._tell(tickets, error, wait=True, patient=True)

    def _end(self, session: Session, unit: _Unit) -> None:
        keep = False
        try:
            unit.__exit__(None, None, None)
            keep = True
        finally:
            self._put_back(session, keep)
        self._crashpoints.hit("commit.after")

    def _tell(
        self, tickets: list[Pending], error: BaseException, *, wait: bool, patient: bool
    ) -> list[Pending]:
        """Leaves on each ticket what an error of their unit means for it; returns those to be run apart."""
        if isinstance(error, StoreBusy):
            if not wait:
                raise error
            if not (patient or self._one_writer):
                return tickets
            fail(tickets, error)
        elif isinstance(error, StoreRejected):
            return self._run_apart(tickets, error, patient)
        elif isinstance(error, PartUnavailable) and len(tickets) > 1:
            return self._run_each(tickets, patient)
        elif isinstance(error, StoreUnknown):
            self._read_back(tickets, error)
        else:
            return self._run_after_fault(tickets, error, patient)
        return []

    def _run_after_fault(
        self, tickets: list[Pending], error: BaseException, patient: bool
    ) -> list[Pending]:
        """Something that is no error of the store's: one operation must not spoil its neighbours."""
        if len(tickets) == 1 or isinstance(error, OncegateError) or not isinstance(error, Exception):
            fail(tickets, error)
            return []
        return self._run_each(tickets, patient)

    def _run_each(self, tickets: list[Pending], patient: bool) -> list[Pending]:
        return [busy for ticket in tickets for busy in self.run([ticket], wait=True, patient=patient)]

    def _commit(self, tickets: list[Pending], wait: bool, patient: bool) -> None:
        # Whoever waits for a lock has a session for as long as that takes: no writer is kept from its own.
        is_apart = patient and not self._one_writer
        session = run_in_thread(self._store.connect) if is_apart else self.take(self._idle)
        keep = False
        try:
            with session.unit(wait=wait, single=not self._one_writer, patient=patient):
                _run_on(session, tickets)
                self._crashpoints.hit("commit.before")
            keep = not is_apart
        except (StoreBusy, StoreRejected):
            keep = not is_apart
            raise
        finally:
            self._put_back(session, keep)
        self._crashpoints.hit("commit.after")

    def take(self, sessions: list[Session]) -> Session:
        """One of these sessions, or a new one."""
        try:
            return sessions.pop()
        except IndexError:
            return run_in_thread(self._store.connect)

    def _put_back(self, session: Session, keep: bool) -> None:
        if keep and not self._closed:
            self._idle.append(session)
        else:
            session.close()

    def _run_apart(self, tickets: list[Pending], error: StoreRejected, patient: bool) -> list[Pending]:
        """One ticket's own statement was refused: those that carry statements are run one by one."""
        if len(tickets) == 1:
            tickets[0].error = error
            return []
        plain = [ticket for ticket in tickets if not ticket.operation.carries]
        if len(plain) == len(tickets):
            return self._run_each(tickets, patient)
        busy = self.run(plain, wait=True, patient=patient) if plain else []
        return busy + self._run_each([one for one in tickets if one.operation.carries], patient)

    def _read_back(self, tickets: list[Pending], error: StoreUnknown) -> None:
        """Finds out which operations of a doubtful commit took effect.

        A commit of our own comes first: it overwrites what the doubtful one may have left half visible,
        so that "not there" stays true.
        """
        try:
            self._recall(tickets)
        except PartUnavailable:
            if len(tickets) == 1:
                fail(tickets, error)
            for ticket in tickets if len(tickets) > 1 else ():
                self._read_back([ticket], error)
            return
        except Exception:  # noqa: BLE001  whatever keeps us from reading, the outcome stays unknown
            fail(tickets, error)
            return
        for ticket in tickets:
            if ticket.answer is None:
                ticket.error = StoreUnavailable(f"the commit failed: {ticket.operation.not_recalled}")

    def _recall(self, tickets: list[Pending]) -> None:
        session = run_in_thread(self._store.connect)
        try:
            with session.unit():
                session.settle_doubt()
            with session.unit():
                for members in by_kind(tickets):
                    operations = [member.operation for member in members]
                    for member, answer in zip(
                        members, operations[0].recall_all(session, operations), strict=True
                    ):
                        member.answer, member.error = answer, None
        finally:
            session.close()

    def drop_sessions(self) -> None:
        """Closes the idle sessions; others are opened when they are needed."""
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        """Closes the sessions, those at work as soon as they are done."""
        self._closed = True
        self.drop_sessions()


def _run_on(session: Session, tickets: list[Pending]) -> None:
    if len(tickets) == 1:
        (only,) = tickets
        (only.answer,) = only.operation.run(session, [only.operation])
        return
    for members in by_kind(tickets):
        operations = [member.operation for member in members]
        answers = operations[0].run(session, operations)
        for member, answer in zip(members, answers, strict=True):
            member.answer = answer
