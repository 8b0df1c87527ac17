"""What a handler is given: the key, and the calls that make its effects happen once.

`Once` is for plain functions, `AsyncOnce` for async ones. Both are faces only: they hand the same flows to
the driver. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, TypeVar, overload

from oncegate.errors import UsageError
from oncegate.gate.codec.callable_info import callee_of
from oncegate.gate.codec.introspection import step_name_of
from oncegate.gate.driver.awaiting import check_ended, give, give_statement
from oncegate.gate.driver.drivers import Driver
from oncegate.gate.driver.requests import Flow, Invoke, Where
from oncegate.gate.flows.effect_notes import EffectCall
from oncegate.gate.flows.effects import effect_flow, write_step_flow
from oncegate.gate.flows.key_injection import KEY_HEADER, current_step_key, warn_if_named_after_function
from oncegate.gate.flows.transactions import (
    OpenTransaction,
    begin_flow,
    commit_block_flow,
    join_flow,
    open_join,
)
from oncegate.gate.runtime.claim import Claim, checked
from oncegate.gate.runtime.context import GateContext, check_takes_writes
from oncegate.gate.runtime.resources import readable
from oncegate.gate.runtime.their_transaction import THEIRS
from oncegate.gate.runtime.transact_items import Item, stage_items
from oncegate.gate.surface import UNDECLARED, Downstream
from oncegate.model.trace import headers_of
from oncegate.store import Joined, Outgoing, Placed, Statement

R = TypeVar("R")
_UNSET: Any = object()


class _Face:
    """What both faces share: the key, and what is handed over as data."""

    __slots__ = ("_claim", "_driver", "_gate", "_transaction")

    def __init__(
        self, gate: GateContext, driver: Driver, claim: Claim, transaction: OpenTransaction | Joined | None
    ) -> None:
        self._gate = gate
        self._driver = driver
        self._claim = claim
        self._transaction = transaction

    @property
    def key(self) -> str:
        """The key to pass on: inside an effect that effect's own, elsewhere the event's."""
        step_key = current_step_key.get()
        if step_key is None or not step_key.startswith(self._claim.key.text):
            return self._claim.key.text
        self._gate.keys_read.add(step_key)
        return step_key

    @property
    def headers(self) -> dict[str, str]:
        """The key as the header that downstreams know, and the trace context if the event had one."""
        context = self._claim.context
        return {KEY_HEADER: self.key, **({} if context is None else headers_of(context))}

    @property
    def attempt(self) -> int:
        """Which attempt this is; 1 is the first."""
        return self._claim.reserved.attempt

    def _effect(
        self,
        downstream: Downstream,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        name: str | None,
    ) -> Flow[Any]:
        if self._transaction is not None:
            raise UsageError(
                "a same-database handler is one transaction: its reservation is not durable before an "
                "outside call; register the surface without same_database to use effects and steps"
            )
        if not isinstance(downstream, Downstream) or not callable(function):
            raise UsageError(
                "once.effect takes a downstream, as gate.downstream(…) gives it, and a function"
            )
        callee = callee_of(function)
        step_name = name or callee.step_name or step_name_of(function)
        if name is None:
            warn_if_named_after_function(self._claim.surface.declaring, step_name)
        gate, claim = self._gate, self._claim
        call = EffectCall(gate, claim, downstream, step_name, function, arguments, keywords, callee)
        return effect_flow(call)

    def _stage(
        self, resource: str | None, outcome: Any, writes: Sequence[Statement], transact: Sequence[Item]
    ) -> None:
        claim = self._claim
        claim.check_usable()
        if resource is not None:
            claim.resource = readable(str(resource))[:200]
        if outcome is not _UNSET:
            claim.outcome = claim.surface.codec.encode(outcome)
        if writes:
            check_takes_writes(self._gate)
            claim.writes += checked(writes)
        stage_items(self._gate, claim, transact)

    def _transaction_to_join(self, given: object) -> object:
        """What was given as `tx=`, else the framework's own open transaction, else None."""
        if (ambient := self._gate.ambient) is None or given is not None or self._claim.joined:
            return given
        return ambient.open_one(self._claim.surface)

    def _check_no_transaction(self) -> None:
        if self._transaction is not None:
            raise UsageError(
                "a same-database handler is one transaction already; write through once.tx, or through the "
                "transaction that was given to gate.admit(tx=…)"
            )


class Transaction:
    """A handler's open transaction, for plain functions."""

    def __init__(self, transaction: OpenTransaction) -> None:
        self._transaction = transaction

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement and returns its rows."""
        return self._transaction.execute(sql, parameters)

    def enqueue(self, event: Outgoing) -> Placed:
        """Puts an event at the end of its lane: it goes out if this transaction commits."""
        return self._transaction.enqueue(event)


class AsyncTransaction:
    """A handler's open transaction, for async functions."""

    def __init__(self, transaction: OpenTransaction, driver: Driver) -> None:
        self._transaction = transaction
        self._driver = driver

    def execute(
        self, sql: str, parameters: Sequence[Any] = ()
    ) -> Coroutine[Any, Any, list[tuple[Any, ...]]]:
        """Runs a statement, when it is awaited, and returns its rows."""
        work = self._driver.run_statement(self._transaction.execute, sql, parameters)
        return give_statement(self._transaction.given, "tx.execute(…)", work)

    def enqueue(self, event: Outgoing) -> Coroutine[Any, Any, Placed]:
        """Puts an event at the end of its lane, when it is awaited: it goes out if this commits."""
        work = self._driver.run_statement(self._transaction.enqueue, event)
        return give_statement(self._transaction.given, "tx.enqueue(…)", work)


class Once(_Face):
    """The tools of a plain handler: effects, steps, writes and the commit of one event."""

    def effect(
        self,
        downstream: Downstream,
        function: Callable[..., R],
        /,
        *arguments: Any,
        name: str | None = None,
        **keywords: Any,
    ) -> R:
        """Calls a downstream once for this event and step, or returns what it already did."""
        flow: Flow[R] = self._effect(downstream, function, arguments, keywords, name)
        return self._driver.run(flow)

    def step(self, name: str, function: Callable[..., R], /, *arguments: Any, **keywords: Any) -> R:
        """Runs a named step at most once: finished steps are skipped when the handler is run again."""
        flow: Flow[R] = self._effect(UNDECLARED, function, arguments, keywords, name)
        return self._driver.run(flow)

    def write(self, name: str, writes: Sequence[Statement]) -> None:
        """Runs business writes as a named step, in one transaction with its record."""
        self._check_no_transaction()
        self._driver.run(write_step_flow(self._gate, self._claim, name, writes))

    def commit(
        self,
        *,
        resource: str | None = None,
        outcome: Any = _UNSET,
        writes: Sequence[Statement] = (),
        transact: Sequence[Item] = (),
        tx: object = None,
    ) -> CommitBlock:
        """Commits business writes together with the outcome of the event.

        `writes`, or `transact` (DynamoDB's TransactWriteItems), are committed with it when the handler
        returns. `with once.commit() as tx:` opens a transaction that commits at the end of the block. `tx=`
        joins the caller's own open transaction: the caller commits it before the handler returns.
        """
        self._check_no_transaction()
        self._stage(resource, outcome, writes, transact)
        if (tx := self._transaction_to_join(tx)) is not None:
            joined = open_join(self._gate, self._claim, tx, can_await=False)
            self._driver.run(join_flow(self._gate, self._claim, joined))
        return CommitBlock(self._gate, self._driver, self._claim)

    @property
    def tx(self) -> Transaction:
        """The transaction of a same-database handler."""
        return Transaction(_require(self._transaction))


class AsyncOnce(_Face):
    """The tools of an async handler: effects, steps, writes and the commit of one event."""

    __slots__ = ()

    @overload
    def effect(
        self,
        downstream: Downstream,
        function: Callable[..., Awaitable[R]],
        /,
        *arguments: Any,
        name: str | None = None,
        **keywords: Any,
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def effect(
        self,
        downstream: Downstream,
        function: Callable[..., R],
        /,
        *arguments: Any,
        name: str | None = None,
        **keywords: Any,
    ) -> Coroutine[Any, Any, R]: ...

    def effect(
        self,
        downstream: Downstream,
        function: Callable[..., Any],
        /,
        *arguments: Any,
        name: str | None = None,
        **keywords: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Calls a downstream once for this event and step, or returns what it already did."""
        flow = self._effect(downstream, function, arguments, keywords, name)
        return self._driver.run_async(give(self._claim.given, "once.effect(…)", flow))

    @overload
    def step(
        self, name: str, function: Callable[..., Awaitable[R]], /, *arguments: Any, **keywords: Any
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def step(
        self, name: str, function: Callable[..., R], /, *arguments: Any, **keywords: Any
    ) -> Coroutine[Any, Any, R]: ...

    def step(
        self, name: str, function: Callable[..., Any], /, *arguments: Any, **keywords: Any
    ) -> Coroutine[Any, Any, Any]:
        """Runs a named step at most once: finished steps are skipped when the handler is run again."""
        flow = self._effect(UNDECLARED, function, arguments, keywords, name)
        return self._driver.run_async(give(self._claim.given, "once.step(…)", flow))

    def write(self, name: str, writes: Sequence[Statement]) -> Coroutine[Any, Any, None]:
        """Runs business writes as a named step, in one transaction with its record."""
        self._check_no_transaction()
        flow = write_step_flow(self._gate, self._claim, name, writes)
        return self._driver.run_async(give(self._claim.given, "once.write(…)", flow))

    def commit(
        self,
        *,
        resource: str | None = None,
        outcome: Any = _UNSET,
        writes: Sequence[Statement] = (),
        transact: Sequence[Item] = (),
        tx: object = None,
    ) -> AsyncCommitBlock:
        """Commits business writes together with the outcome of the event.

        `writes`, or `transact` (DynamoDB's TransactWriteItems), are committed with it when the handler
        returns. `async with once.commit() as tx:` opens a transaction that commits at the end of the block.
        `await once.commit(tx=…)` joins the caller's own open transaction: the caller commits it,
        before the handler returns. A `tx` that is not async is joined at the call already.
        """
        self._check_no_transaction()
        self._stage(resource, outcome, writes, transact)
        block = AsyncCommitBlock(self._gate, self._driver, self._claim)
        if (tx := self._transaction_to_join(tx)) is not None:
            block.join(open_join(self._gate, self._claim, tx, can_await=True))
        return block

    @property
    def tx(self) -> AsyncTransaction:
        """The transaction of a same-database handler."""
        return AsyncTransaction(_require(self._transaction), self._driver)


class CommitBlock:
    """`with once.commit() as tx:` for plain functions."""

    def __init__(self, gate: GateContext, driver: Driver, claim: Claim) -> None:
        self._gate, self._driver, self._claim = gate, driver, claim
        self._opened: OpenTransaction | None = None

    @property
    def _transaction(self) -> OpenTransaction:
        if self._opened is None:
            self._opened = OpenTransaction(self._gate)
        return self._opened

    def __enter__(self) -> Transaction:
        if self._claim.joined:
            return Transaction(THEIRS)
        self._driver.run(_enter(self._claim, self._transaction))
        return Transaction(self._transaction)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._claim.joined:
            return
        self._driver.run(_leave(self._gate, self._claim, self._transaction, error))


class AsyncCommitBlock:
    """`async with once.commit() as tx:` for async functions; may also be awaited."""

    __slots__ = ("_claim", "_driver", "_gate", "_joining", "_opened")

    def __init__(self, gate: GateContext, driver: Driver, claim: Claim) -> None:
        self._gate, self._driver, self._claim = gate, driver, claim
        self._opened: OpenTransaction | None = None
        self._joining: Flow[None] | None = None

    def join(self, joined: Joined) -> None:
        """Joins a user's transaction: one that is async when this is awaited, any other at once."""
        flow = join_flow(self._gate, self._claim, joined)
        if joined.is_async:
            self._joining = flow
        else:
            self._driver.run(flow)

    @property
    def _transaction(self) -> OpenTransaction:
        if self._opened is None:
            self._opened = OpenTransaction(self._gate)
        return self._opened

    def __await__(self) -> Generator[Any, None, None]:
        flow, self._joining = self._joining, None
        if flow is not None:
            yield from self._driver.run_async(flow).__await__()

    async def __aenter__(self) -> AsyncTransaction:
        await self
        if self._claim.joined:
            return AsyncTransaction(THEIRS, self._driver)
        await self._driver.run_async(_enter(self._claim, self._transaction))
        return AsyncTransaction(self._transaction, self._driver)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._claim.joined:
            return
        await self._driver.run_async(_leave(self._gate, self._claim, self._transaction, error))


def _enter(claim: Claim, transaction: OpenTransaction) -> Flow[None]:
    claim.check_usable()
    check_ended(claim.given)
    yield from begin_flow(transaction)
    claim.in_block = True


def _leave(
    gate: GateContext, claim: Claim, transaction: OpenTransaction, error: BaseException | None
) -> Flow[None]:
    claim.in_block = False
    if error is not None:
        yield Invoke(transaction.rollback, where=Where.STATEMENT)
        return
    try:
        check_ended(transaction.given)
    except UsageError:
        yield Invoke(transaction.rollback, where=Where.STATEMENT)
        raise
    yield from commit_block_flow(gate, claim, transaction)


def _require(transaction: OpenTransaction | Joined | None) -> OpenTransaction:
    if transaction is None:
        raise UsageError("once.tx is for same-database handlers; use once.commit() here")
    if not isinstance(transaction, OpenTransaction):
        raise UsageError("the event was admitted with tx=: write through that transaction, not once.tx")
    return transaction
