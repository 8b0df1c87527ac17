"""Handlers' own transactions on the ledger's database: business writes and outcome in one commit.

Blocking, like the store; the drivers decide where they run. Must never leave a transaction open: the code
that begins one ends it on every path. A transaction that is the user's own is joined and never ended here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from oncegate.commit.greenlet_bridge import Exclusive
from oncegate.commit.operations import IsCommitted
from oncegate.errors import ClaimLost, StoreBusy, StoreError, StoreUnknown, UsageError
from oncegate.gate.driver.awaiting import Given, check_ended
from oncegate.gate.driver.requests import Flow, Invoke, Where
from oncegate.gate.flows.outcome_documents import outcome_of
from oncegate.gate.flows.settlement import expect_value, remember, settlement_of
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext, author_of, check_takes_writes
from oncegate.model.sql_guard import check_statement
from oncegate.model.states import State
from oncegate.store import Joined, Outgoing, Placed, Reservation, Reserved, Session, Settlement


class OpenTransaction:
    """A transaction of one handler, from begin to commit or rollback.

    A task may be cancelled while a thread still begins or uses the transaction for it; `rollback` then
    waits for the statement, or leaves a mark that makes `begin` end the transaction at once.
    """

    def __init__(self, gate: GateContext) -> None:
        self._gate = gate
        self._context: AbstractContextManager[Session] | None = None
        self._session: Session | None = None
        self._unwanted = False
        self._changing = threading.Lock()
        self._using = Exclusive()
        self.given: Given = []

    def begin(self, *, wait: bool = True) -> None:
        """Waits for the turn to write and opens the transaction; without `wait`, at once or StoreBusy."""
        check_takes_writes(self._gate)
        context = self._gate.commits.transaction(wait=wait, using=self._using)
        try:
            session = context.__enter__()
        except BaseException:
            _abandon(context)  # an interrupt may come when it is open already
            raise
        with self._changing:
            if not self._unwanted:
                self._context, self._session = context, session
                return
        with self._using:
            _abandon(context)

    @property
    def session(self) -> Session:
        """The open session."""
        if self._session is None:
            raise UsageError("the transaction is not open; use it inside its with block")
        return self._session

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement and returns its rows."""
        check_statement(sql)
        with self._using:
            return self.session.execute(sql, parameters)

    def reserve(self, reservation: Reservation) -> Reserved:
        """Reserves a key inside this transaction."""
        with self._using:
            return self.session.reserve([reservation])[0]

    def enqueue(self, event: Outgoing) -> Placed:
        """Puts an event at the end of its lane, inside this transaction."""
        with self._using:
            return self.session.enqueue([event])[0]

    def settle_and_commit(self, settlement: Settlement) -> None:
        """Ends the claim inside this transaction and commits, or raises ClaimLost and undoes everything."""
        with self._using:
            self._gate.crashpoints.hit("commit.before")
            if not self.session.settle([settlement], last=True)[0]:
                raise ClaimLost("another worker holds the key now; this transaction is undone")
            self._commit()
        self._gate.crashpoints.hit("commit.after")

    def commit(self) -> None:
        """Commits."""
        with self._using:
            self._commit()

    def _commit(self) -> None:
        context = self._leave()
        if context is not None:
            context.__exit__(None, None, None)

    def rollback(self) -> None:
        """Undoes everything."""
        if not self._using.can_be_had():  # the task is being destroyed, and its statement with it
            self.session.close()
            return
        with self._using:
            context = self._leave()
            if context is not None:
                _abandon(context)

    def _leave(self) -> AbstractContextManager[Session] | None:
        with self._changing:
            self._unwanted = True
            context, self._context, self._session = self._context, None, None
            return context


def _abandon(context: AbstractContextManager[Session]) -> None:
    try:
        context.__exit__(_Undo, _Undo(), None)
    except _Undo:
        return


class _Undo(Exception):
    """Tells a unit to roll back."""


def begin_flow(transaction: OpenTransaction) -> Flow[None]:
    """Opens a transaction; an interrupt while waiting for it leaves nothing open."""
    try:
        transaction.begin(wait=False)
        return
    except StoreBusy:
        pass
    try:
        yield Invoke(transaction.begin, where=Where.TURN)
    except BaseException:
        transaction.rollback()
        raise


def commit_block_flow(gate: GateContext, claim: Claim, transaction: OpenTransaction) -> Flow[None]:
    """Ends a commit block: settles the claim in the handler's transaction and commits both."""
    body = claim.outcome
    outcome = None if body is None else outcome_of(claim, body)
    settlement = settlement_of(gate, claim, State.COMMITTED, outcome, None)
    if outcome is None:
        expect_value(gate, claim)
    try:
        yield Invoke(transaction.settle_and_commit, (settlement,), where=Where.STATEMENT)
    except StoreUnknown:
        yield Invoke(transaction.rollback, where=Where.STATEMENT)  # nobody goes on with this connection
        if not (yield from _was_committed(claim)):
            raise
    except GeneratorExit:  # nothing more can be asked; whoever drops the transaction undoes it
        raise
    except BaseException as error:
        claim.lost = isinstance(error, ClaimLost)
        yield Invoke(transaction.rollback, where=Where.STATEMENT)
        raise
    claim.committed = True
    if outcome is not None:
        remember(gate, claim, State.COMMITTED, outcome, None)


def _was_committed(claim: Claim) -> Flow[bool]:
    """Whether a doubtful commit is known to have happened: where it cannot be read back it is not."""
    try:
        is_committed: bool = yield IsCommitted(claim.id)
    except StoreError:
        return False
    return is_committed


def open_join(gate: GateContext, claim: Claim, transaction: object, *, can_await: bool) -> Joined:
    """Finds the way into a user's own open transaction; raises UsageError if there is none."""
    check_takes_writes(gate)
    joined = gate.commits.store.join(transaction)
    if joined.is_async and not can_await:
        raise UsageError("tx= is async: use an async handler and `await once.commit(tx=…)`")
    claim.join = joined
    return joined


def join_flow(gate: GateContext, claim: Claim, joined: Joined) -> Flow[None]:
    """Settles the claim inside a user's own open transaction; they commit it.

    From here on their lock guards the claim: renewing it would only wait behind them.
    """
    claim.check_usable()
    check_ended(claim.given)
    yield from learn_flow(gate, (author_of(gate, claim.surface.rule, claim.arrival),))
    gate.leases.release(claim)
    outcome = None if claim.outcome is None else outcome_of(claim, claim.outcome)
    settlement = settlement_of(gate, claim, State.COMMITTED, outcome, None)
    if outcome is None:
        expect_value(gate, claim)
    yield from settle_joined_flow(claim, joined, settlement)
    claim.joined = True


def settle_joined_flow(claim: Claim, joined: Joined, settlement: Settlement) -> Flow[None]:
    """Ends the claim in a user's transaction, or raises there so that their writes are undone with it."""
    if not (yield Invoke(joined.settle_one, (settlement,), where=Where.HERE)):
        claim.lost = True
        raise ClaimLost("another worker holds the key now; roll this transaction back")


def learn_flow(gate: GateContext, names: Sequence[str]) -> Flow[None]:
    """Makes names known to the store before a user's transaction needs them."""
    store = gate.commits.store
    if not store.knows(names):
        yield Invoke(store.learn, (names,))
