"""The ledger inside a test's own transaction: what `TestCase` rolls back, it rolls back too.

`django.test.TestCase` keeps one transaction open around each test, on one connection. A ledger beside it
would outlast the test, and on SQLite it would wait for the test's lock. So inside such a test, and for
SQLite in memory, the ledger's statements go over Django's own connection, and its transactions are
savepoints. Production never comes here: `DjangoGate` asks only while Django's test environment is set up.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.gate.gate import GateEngine
from oncegate.gate.runtime.ambient import AmbientTransactions
from oncegate.gate.runtime.arrival_stats import Sightings
from oncegate.gate.runtime.leases import LeaseKeeper
from oncegate.store import Store
from oncegate.stores.sqlite import SqliteStore
from oncegate.stores.sqlite.session import JoinedSession, PlainRows, SqliteSession

if TYPE_CHECKING:
    from oncegate.store import Migration

KEPT_TABLES: Final = {"oncegate_meta", "oncegate_ticks"}  # what says that there is a ledger, and its time
_OURS: Final = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'oncegate_*'",
    "postgresql": "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
    " AND relnamespace = current_schema()::regnamespace AND relname ~ '^oncegate_'",
}


def test_transaction(connection: Any) -> object | None:
    """The innermost transaction that a `TestCase` holds on a connection; None where there is none."""
    blocks = (one for one in reversed(connection.atomic_blocks) if getattr(one, "_from_testcase", False))
    return next(blocks, None)


def nested_engine(connection: Any, ambient: AmbientTransactions) -> GateEngine:
    """An engine whose ledger is on Django's open connection; nothing of it runs in a thread of its own."""
    store: Store
    if connection.vendor == "sqlite":
        store = NestedSqliteStore(connection)
    else:
        from oncegate.contrib.django.nested_postgres import NestedPostgresStore

        store = NestedPostgresStore(connection)
    clock = SystemClock()
    commits = GroupCommit(store, clock=clock)
    leases, sightings = _UnrenewedLeases(commits, clock), _UntoldSightings(commits, clock)
    return GateEngine(
        store, clock=clock, commits=commits, leases=leases, sightings=sightings, ambient=ambient
    )


def empty_ledger(connection: Any) -> None:
    """Removes every entry of a test database's ledger, as Django's `flush` does with models."""
    with connection.constraint_checks_disabled(), connection.cursor() as cursor:
        cursor.execute(_OURS[connection.vendor])
        names = sorted({row[0] for row in cursor.fetchall()} - KEPT_TABLES)
        if connection.vendor == "postgresql" and names:
            cursor.execute(f"TRUNCATE {', '.join(names)}")
            return
        for name in names:
            cursor.execute(f"DELETE FROM {name}")


class _UnrenewedLeases(LeaseKeeper):
    """Leases that no thread renews: a thread would use the test's connection meanwhile."""

    def _start(self) -> None: ...


class _UntoldSightings(Sightings):
    """Statistics that no thread writes."""

    def _start(self) -> None: ...

    def close(self) -> None:
        """Forgets what was counted."""


class _SqliteSavepoints:
    """Django's sqlite3 connection; where a transaction is open, the ledger's own are savepoints in it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._users, self._plain = connection, PlainRows(connection)
        self._is_nested = self.in_transaction = False
        self._words = {"BEGIN IMMEDIATE": self._begin, "COMMIT": self._commit, "ROLLBACK": self._undo}

    def cursor(self) -> _SqliteSavepoints:
        """Itself: every statement has a cursor of its own."""
        return self

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Runs a statement."""
        sql = self._words[sql]() if sql in self._words else sql
        return self._plain.execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        """Runs a statement for many rows."""
        return self._plain.executemany(sql, rows)

    def _begin(self) -> str:
        self._is_nested, self.in_transaction = self._users.in_transaction, True
        return "SAVEPOINT oncegate" if self._is_nested else "BEGIN IMMEDIATE"

    def _commit(self) -> str:
        self.in_transaction = False
        return "RELEASE oncegate" if self._is_nested else "COMMIT"

    def _undo(self) -> str:
        self.in_transaction = False
        if not self._is_nested:
            return "ROLLBACK"
        self._plain.execute("ROLLBACK TO oncegate")
        return "RELEASE oncegate"

    def close(self) -> None:
        """Leaves Django's connection alone."""


class _NestedSqliteSession(SqliteSession):
    def wait_for_others(self, wait: bool) -> None:
        """Leaves the connection's timeout as Django has set it."""
        self._waits = wait


class NestedSqliteStore(SqliteStore):
    """A ledger in the SQLite database that Django's own connection has open."""

    def __init__(self, connection: Any) -> None:
        super().__init__(Path(f"django-{connection.alias}"))
        self._django = connection

    def connect(self) -> SqliteSession:
        """A session on Django's connection."""
        plain = cast("sqlite3.Connection", _SqliteSavepoints(self._django.connection))
        return _NestedSqliteSession(plain, self.path, self._clock)

    def join(self, transaction: object) -> JoinedSession:
        """The same connection: everything is in the test's transaction."""
        return JoinedSession(self._django.connection, self.path, self._clock)

    @contextmanager
    def look(self, *, again: bool = False) -> Iterator[JoinedSession]:
        """Reads on Django's connection."""
        yield self.join(None)

    def exists(self) -> bool:
        """There is one: Django has it open."""
        return True

    def pending_migrations(self) -> list[Migration]:
        """What the database still needs."""
        from oncegate.stores.sqlite import schema

        return schema.pending(self._django.connection)

    def migrate(self) -> list[Migration]:
        """Applies and returns the pending migrations."""
        from oncegate.stores.sqlite import schema

        return schema.apply_pending(self._django.connection)
