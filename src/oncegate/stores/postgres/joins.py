"""Users' own transactions on PostgreSQL: one small adapter for each library that may hold one.

Made by `PostgresStore.join`, used by the gate inside the user's transaction, on the user's own thread or
event loop. Must never begin, commit or undo anything, and uses only what the libraries document.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from oncegate.errors import UsageError
from oncegate.store import Document, Joined, Outgoing, Placed, Reservation, Reserved, Settlement
from oncegate.store.feed import EventToPublish, Published
from oncegate.stores.postgres.feed_statement_generators import publish_joined
from oncegate.stores.postgres.lane_statement_generators import enqueue
from oncegate.stores.postgres.placeholders import to_driver, to_numbered
from oncegate.stores.postgres.registry import LIST_DOCUMENTS
from oncegate.stores.postgres.statement_generators import (
    Facts,
    Rows,
    Script,
    perform,
    reserve,
    settle,
    submit_async,
)
from oncegate.stores.shared.driver_detection import (
    DriverKind,
    check_open,
    is_still_open,
    no_transaction,
    recognise,
)

Execute = Callable[[str, Sequence[Any]], Rows]
ExecuteAsync = Callable[[str, Sequence[Any]], Awaitable[Rows]]
_ASYNC_SQLALCHEMY = (DriverKind.SQLALCHEMY_ASYNC_SESSION, DriverKind.SQLALCHEMY_ASYNC_CONNECTION)


def join(transaction: object, facts: Facts) -> Joined:
    """Finds the adapter for a user's transaction; raises UsageError where there is nothing to join."""
    kind, behind = recognise(transaction)
    if kind is None or kind is DriverKind.SQLITE3:
        raise UsageError(
            f"tx= is a {type(transaction).__name__}; on a PostgreSQL ledger give a psycopg or asyncpg "
            "connection, a SQLAlchemy session or connection, or Django's connection"
        )
    check_open(kind, behind)
    if kind in _ASYNC_SQLALCHEMY:
        return SqlalchemyAsyncJoin(kind, behind, facts)
    if kind in _EXECUTES_ASYNC:
        return AsyncJoin(kind, behind, facts, _EXECUTES_ASYNC[kind](behind))
    return BlockingJoin(kind, behind, facts, _EXECUTES[kind](behind))


class _Join:
    """What all adapters share."""

    is_async = True

    def __init__(self, kind: DriverKind, transaction: Any, facts: Facts) -> None:
        self._kind = kind
        self._transaction = transaction
        self._facts = facts
        self.mark: str | None = None

    def _settled(self, mark: str | None) -> bool:
        """Keeps what names the transaction that a claim was ended in, if it was."""
        self.mark = mark
        return mark is not None

    def is_open(self) -> bool:
        """Whether the transaction has not been ended yet."""
        return is_still_open(self._kind, self._transaction)


class BlockingJoin(_Join):
    """A blocking connection, used on its own thread."""

    is_async = False

    def __init__(self, kind: DriverKind, transaction: Any, facts: Facts, execute: Execute) -> None:
        super().__init__(kind, transaction, facts)
        self._execute = execute

    def reserve_one(self, reservation: Reservation) -> Reserved:
        """Reserves a key in the user's transaction."""
        return perform(reserve(self._facts, reservation), self._execute)

    def settle_one(self, settlement: Settlement) -> bool:
        """Ends a claim in the user's transaction."""
        return self._settled(perform(settle(self._facts, settlement), self._execute))

    def publish_one(self, publication: EventToPublish) -> Published:
        """Publishes an event in the user's transaction."""
        return perform(publish_joined(self._facts, publication), self._execute)

    def enqueue_one(self, event: Outgoing) -> Placed:
        """Puts an event at the end of its lane in the user's transaction."""
        return perform(enqueue(self._facts, event), self._execute)

    def documents(self, kind: str) -> list[Document]:
        """Reads documents in the user's transaction."""
        return perform(list_documents(kind), self._execute)


class AsyncJoin(_Join):
    """An async connection, used on its own event loop."""

    def __init__(self, kind: DriverKind, transaction: Any, facts: Facts, execute: ExecuteAsync) -> None:
        super().__init__(kind, transaction, facts)
        self._execute = execute

    async def reserve_one(self, reservation: Reservation) -> Reserved:
        """Reserves a key in the user's transaction."""
        return await submit_async(reserve(self._facts, reservation), self._execute)

    async def settle_one(self, settlement: Settlement) -> bool:
        """Ends a claim in the user's transaction."""
        return self._settled(await submit_async(settle(self._facts, settlement), self._execute))

    async def publish_one(self, publication: EventToPublish) -> Published:
        """Publishes an event in the user's transaction."""
        return await submit_async(publish_joined(self._facts, publication), self._execute)

    async def enqueue_one(self, event: Outgoing) -> Placed:
        """Puts an event at the end of its lane in the user's transaction."""
        return await submit_async(enqueue(self._facts, event), self._execute)

    async def documents(self, kind: str) -> list[Document]:
        """Reads documents in the user's transaction."""
        return await submit_async(list_documents(kind), self._execute)


class SqlalchemyAsyncJoin(_Join):
    """SQLAlchemy's async face: it lends the blocking session or connection behind it."""

    async def reserve_one(self, reservation: Reservation) -> Reserved:
        """Reserves a key in the user's transaction."""
        reserved: Reserved = await self._transaction.run_sync(
            lambda plain: perform(reserve(self._facts, reservation), self._executes(plain))
        )
        return reserved

    async def settle_one(self, settlement: Settlement) -> bool:
        """Ends a claim in the user's transaction."""
        mark: str | None = await self._transaction.run_sync(
            lambda plain: perform(settle(self._facts, settlement), self._executes(plain))
        )
        return self._settled(mark)

    async def publish_one(self, publication: EventToPublish) -> Published:
        """Publishes an event in the user's transaction."""
        published: Published = await self._transaction.run_sync(
            lambda plain: perform(publish_joined(self._facts, publication), self._executes(plain))
        )
        return published

    async def enqueue_one(self, event: Outgoing) -> Placed:
        """Puts an event at the end of its lane in the user's transaction."""
        placed: Placed = await self._transaction.run_sync(
            lambda plain: perform(enqueue(self._facts, event), self._executes(plain))
        )
        return placed

    async def documents(self, kind: str) -> list[Document]:
        """Reads documents in the user's transaction."""
        found: list[Document] = await self._transaction.run_sync(
            lambda plain: perform(list_documents(kind), self._executes(plain))
        )
        return found

    def _executes(self, plain: Any) -> Execute:
        is_session = self._kind is DriverKind.SQLALCHEMY_ASYNC_SESSION
        return _on_session(plain) if is_session else _on_connection(plain)


def list_documents(kind: str) -> Script[list[Document]]:
    """Reads all documents of a kind, by name."""
    rows = yield LIST_DOCUMENTS, (kind,)
    return [Document(row[0], row[1], row[2], bytes(row[3]), row[4]) for row in rows]


def _on_session(session: Any) -> Execute:
    return _on_connection(session.connection())


def _on_connection(connection: Any) -> Execute:
    if connection.dialect.name != "postgresql":
        raise UsageError(f"tx= is open on another database than the ledger's: {connection.dialect.name}")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise no_transaction(DriverKind.SQLALCHEMY_CONNECTION)  # isolation_level="AUTOCOMMIT" commits each
    translate = to_numbered if connection.dialect.paramstyle == "numeric_dollar" else to_driver

    def execute(sql: str, parameters: Sequence[Any]) -> Rows:
        result = connection.exec_driver_sql(translate(sql), tuple(parameters))
        return [tuple(row) for row in result] if result.returns_rows else []

    return execute


def _on_django(connection: Any) -> Execute:
    if connection.vendor != "postgresql":
        raise UsageError(f"tx= is open on another database than the ledger's: {connection.vendor}")

    def execute(sql: str, parameters: Sequence[Any]) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(to_driver(sql), tuple(parameters))
            return cursor.fetchall() if cursor.description else []

    return execute


def _on_psycopg(connection: psycopg.Connection[Any]) -> Execute:
    def execute(sql: str, parameters: Sequence[Any]) -> Rows:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(to_driver(sql).encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    return execute


def _on_psycopg_async(connection: psycopg.AsyncConnection[Any]) -> ExecuteAsync:
    async def execute(sql: str, parameters: Sequence[Any]) -> Rows:
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(to_driver(sql).encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    return execute


def _on_asyncpg(connection: Any) -> ExecuteAsync:
    async def execute(sql: str, parameters: Sequence[Any]) -> Rows:
        return [tuple(row) for row in await connection.fetch(to_numbered(sql), *parameters)]

    return execute


_EXECUTES: dict[DriverKind, Callable[[Any], Execute]] = {
    DriverKind.PSYCOPG: _on_psycopg,
    DriverKind.SQLALCHEMY_SESSION: _on_session,
    DriverKind.SQLALCHEMY_CONNECTION: _on_connection,
    DriverKind.DJANGO: _on_django,
}
_EXECUTES_ASYNC: dict[DriverKind, Callable[[Any], ExecuteAsync]] = {
    DriverKind.PSYCOPG_ASYNC: _on_psycopg_async,
    DriverKind.ASYNCPG: _on_asyncpg,
}
