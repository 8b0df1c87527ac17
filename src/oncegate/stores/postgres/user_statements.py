"""Users' statements inside an open unit. Whatever one of them does, it is its own event's failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.pq import Format, TransactionStatus

from oncegate.errors import StoreError, UsageError
from oncegate.store import Statement
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.claims import PostgresClaims
from oncegate.stores.postgres.failures import users_failure
from oncegate.stores.postgres.placeholders import (
    needs_driver,
    to_driver,
    to_numbered,
)
from oncegate.stores.postgres.tidying import refuse_lasting
from oncegate.stores.postgres.wire import Rows, WireCommand

_AS_USUAL = WireCommand(statements.AS_USUAL_HERE)

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresUserStatements(PostgresClaims):
    """Runs users' statements; the session has the connection."""

    _connection: Connection
    _is_planned_as_usual: bool
    _ran_users: bool

    def _exchange(self, commands: list[WireCommand], then: Sequence[WireCommand] = ()) -> list[Rows]:
        raise NotImplementedError

    def _run_writes(self, writes: Iterable[Statement]) -> None:
        for sql, parameters in writes:
            self.execute(sql, parameters)

    def execute(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Runs a user's statement inside the open unit."""
        self._begin()
        try:
            rows = self._execute_user(sql, parameters)
        except (StoreError, UsageError):
            raise
        except Exception as error:  # whatever a user's statement or parameter does, it is theirs alone
            raise users_failure(error, patient=self._is_patient) from error
        if (status := self._connection.pgconn.transaction_status) != TransactionStatus.INTRANS:
            if status == TransactionStatus.IDLE:
                self._unfuse()
            raise UsageError("a statement ended the transaction; leave COMMIT and ROLLBACK to the gate")
        return rows

    def _execute_user(self, sql: str, parameters: Sequence[Any]) -> Rows:
        refuse_lasting(sql)
        self._ran_users = True
        ahead, self._is_planned_as_usual = [] if self._is_planned_as_usual else [_AS_USUAL], True
        if not needs_driver(sql, parameters):
            return self._exchange([*ahead, user_command(sql, parameters)])[-1]
        self._exchange(ahead)
        with self._connection.cursor() as cursor:
            cursor.execute(to_driver(sql), parameters, prepare=False)
            return cursor.fetchall() if cursor.description else []


def user_command(sql: str, parameters: Sequence[Any]) -> WireCommand:
    """A user's statement as it is sent."""
    if isinstance(parameters, Mapping):  # taken by place, its names would be what is written
        raise TypeError("parameters by name are not for writes as data on PostgreSQL; give them by place")
    refuse_lasting(sql)
    return WireCommand(to_numbered(sql), parameters, Format.TEXT)
