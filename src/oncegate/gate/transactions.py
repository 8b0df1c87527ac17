"""Handlers' own transactions on the ledger's database: business writes and outcome in one commit.

Blocking, like the store; the drivers decide where they run. Must never leave a transaction open: whoever
begins one ends it on every path.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from oncegate.errors import ClaimLost, StoreUnknown, UsageError
from oncegate.gate.claim import Claim
from oncegate.gate.context import GateContext
from oncegate.gate.requests import Flow, Invoke, Where
from oncegate.gate.settling import outcome_of, remember, settlement_of
from oncegate.model.states import State
from oncegate.operations import ReadEntry
from oncegate.store import Reservation, Reserved, Session, Settlement


class OpenTransaction:
    """A transaction of one handler, from begin to commit or rollback.

    A task may be cancelled while a thread still begins or uses the transaction for it; `rollback` then
    waits for the statement, or leaves word for `begin` to end at once what nobody wants any more.
    """

    def __init__(self, gate: GateContext) -> None:
        self._gate = gate
        self._context: AbstractContextManager[Session] | None = None
        self._session: Session | None = None
        self._unwanted = False
        self._changing = threading.Lock()
        self._using = threading.Lock()

    def begin(self) -> None:
        """Waits for the turn to write and opens the transaction."""
        context = self._gate.commits.transaction()
        session = context.__enter__()
        with self._changing:
            if not self._unwanted:
                self._context, self._session = context, session
                return
        _abandon(context)

    @property
    def session(self) -> Session:
        """The open session."""
        if self._session is None:
            raise UsageError("the transaction is not open; use it inside its with block")
        return self._session

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement and returns its rows."""
        with self._using:
            return self.session.execute(sql, parameters)

    def reserve(self, reservation: Reservation) -> Reserved:
        """Reserves a key inside this transaction."""
        with self._using:
            return self.session.reserve([reservation])[0]

    def settle(self, settlement: Settlement) -> None:
        """Ends the claim inside this transaction, or raises ClaimLost so that everything is undone."""
        with self._using:
            if not self.session.settle([settlement])[0]:
                raise ClaimLost("another worker holds the key now; this transaction is undone")

    def commit(self) -> None:
        """Commits."""
        with self._using:
            context = self._leave()
            if context is not None:
                context.__exit__(None, None, None)

    def rollback(self) -> None:
        """Undoes everything."""
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
    """Opens a transaction; whoever is interrupted while waiting for it leaves nothing open."""
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
    try:
        yield Invoke(transaction.settle, (settlement,), where=Where.STATEMENT)
        gate.crashpoints.hit("commit.before")
        yield Invoke(transaction.commit, where=Where.STATEMENT)
    except StoreUnknown:
        if not (yield from was_committed_flow(claim)):
            raise
    except BaseException as error:
        claim.lost = isinstance(error, ClaimLost)
        yield Invoke(transaction.rollback, where=Where.STATEMENT)
        raise
    gate.crashpoints.hit("commit.after")
    claim.committed = True
    if outcome is not None:
        remember(gate, claim, State.COMMITTED, outcome, None)


def was_committed_flow(claim: Claim) -> Flow[bool]:
    """Reads back whether a doubtful commit of this claim took effect."""
    entry = yield ReadEntry(claim.key.digest)
    return entry is not None and entry.fence == claim.fence and entry.state is State.COMMITTED


def join(gate: GateContext, claim: Claim, transaction: object) -> None:
    """Settles the claim inside a user's own open transaction; they commit it."""
    joined = gate.commits.store.join(transaction)
    body = claim.outcome
    outcome = None if body is None else outcome_of(claim, body)
    with joined.unit():
        settled = joined.settle([settlement_of(gate, claim, State.COMMITTED, outcome, None)])
    if not settled[0]:
        claim.lost = True
        raise ClaimLost("another worker holds the key now; roll this transaction back")
    claim.joined = True
