"""One connection to a PostgreSQL ledger: units, statements, what a lost connection leaves open.

A unit that is announced as a single call lets each claim statement commit by itself, in one round trip;
every other unit is a transaction. Must never report a statement as failed that may have committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import psycopg
from psycopg import errors as postgres
from psycopg.pq import TransactionStatus

from oncegate.errors import StoreUnknown, UsageError
from oncegate.store import Statement
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.census import PostgresCensus
from oncegate.stores.postgres.claims import PostgresClaims
from oncegate.stores.postgres.failures import rejected, translate
from oncegate.stores.postgres.names import Names
from oncegate.stores.postgres.placeholders import to_driver

Ticks = Callable[[], int]


class PostgresSession(PostgresClaims, PostgresCensus):
    """A session that owns its connection."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], ticks: Ticks | None) -> None:
        self._connection = connection
        self._cursor = connection.cursor(binary=True)
        self._given_ticks = ticks
        self._names = Names(self._query)
        self._in_transaction = False

    def _ticks(self) -> int | None:
        return None if self._given_ticks is None else self._given_ticks()

    def now_ticks(self) -> int:
        """The ledger's own time: the server's clock in milliseconds."""
        ((now,),) = self._query(statements.NOW, (self._ticks(),))
        return int(now)

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            self._cursor.execute(sql, parameters, prepare=True)
            return self._cursor.fetchall() if self._cursor.description else []
        except psycopg.Error as error:
            raise translate(error, committing=not self._in_transaction) from error

    @contextmanager
    def unit(self, *, wait: bool = True, single: bool = False) -> Iterator[None]:
        """One transaction; a single call may be a statement that commits by itself."""
        if not single:
            self._begin()
        try:
            yield
        except BaseException:
            self._undo()
            raise
        self._commit()

    def _begin(self) -> None:
        if not self._in_transaction:
            try:
                self._cursor.execute("BEGIN")
            except psycopg.Error as error:
                raise translate(error, committing=False) from error
            self._in_transaction = True

    def _commit(self) -> None:
        if not self._in_transaction:
            return
        self._in_transaction = False
        try:
            self._cursor.execute("COMMIT")
        except psycopg.Error as error:
            raise translate(error, committing=True) from error
        if self._cursor.statusmessage != "COMMIT":
            raise StoreUnknown("the server undid the transaction instead of committing it")

    def _undo(self) -> None:
        self._names.forget()
        self._in_transaction = False
        try:
            if self._connection.info.transaction_status is not TransactionStatus.IDLE:
                self._connection.rollback()
        except psycopg.Error:
            self._connection.close()

    def _pipelined(self, head: tuple[str, tuple[Any, ...]], writes: Iterable[Statement]) -> bool:
        """Sends a transaction in one go; False if its first statement found a lost fence.

        Whatever fails before COMMIT is certainly undone; only a lost connection leaves it open.
        """
        try:
            with self._connection.pipeline():
                self._cursor.execute("BEGIN")
                self._cursor.execute(*head, prepare=True)
                self._send_writes(writes)
                self._cursor.execute("COMMIT")
        except postgres.DivisionByZero:
            self._undo()
            return False
        except psycopg.OperationalError as error:
            raise translate(error, committing=True) from error
        except Exception as error:  # whatever a user's statement or parameter does, it is theirs alone
            self._undo()
            raise rejected(error) from error
        return True

    def _send_writes(self, writes: Iterable[Statement]) -> None:
        for sql, group in groupby(writes, key=lambda statement: statement[0]):
            self._cursor.executemany(to_driver(sql), [parameters for _, parameters in group])

    def _run_writes(self, writes: Iterable[Statement]) -> None:
        for sql, parameters in writes:
            self.execute(sql, parameters)

    def execute(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Runs a user's statement inside the open unit."""
        self._begin()
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(to_driver(sql), parameters)
                rows = cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError as error:
            raise translate(error, committing=False) from error
        except Exception as error:  # whatever a user's statement or parameter does, it is theirs alone
            raise rejected(error) from error
        if self._connection.info.transaction_status is not TransactionStatus.INTRANS:
            raise UsageError("a statement ended the transaction; leave COMMIT and ROLLBACK to the gate")
        return rows

    def settle_doubt(self) -> None:
        """Nothing to do: PostgreSQL shows a commit or it never happened."""

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
