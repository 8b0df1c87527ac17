"""Empty PostgreSQL ledgers that are used again: cleaning one costs a tenth of making a database.

For tests only. A ledger that comes back damaged, with a table gone or a connection that will not end, is
not handed out again.
"""

from __future__ import annotations

from typing import Final, Protocol

import psycopg

from oncegate.stores.postgres import PostgresStore

LOCK_WAIT_MS: Final = 2_000
_PRISTINE: Final = "oncegate_pristine"  # a schema with the rows that migrations wrote
_END_SESSIONS: Final = (
    "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_RELATIONS: Final = (
    "SELECT relname::text, relkind::text FROM pg_class"
    " WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'S')"
)

Connection = psycopg.Connection[tuple[str, str]]


class Databases(Protocol):
    """A server on which databases can be made."""

    def new_database(self) -> str:
        """Makes an empty database and returns its address."""


class SpareLedgers:
    """Ledgers on one server, each in a database of its own: fresh when taken."""

    def __init__(self, server: Databases) -> None:
        self._server = server
        self._spare: list[str] = []
        self._made: dict[str, frozenset[tuple[str, str]]] = {}

    def take(self) -> str:
        """The address of an empty ledger that nobody else uses."""
        while self._spare:
            url = self._spare.pop()
            if self._clean(url):
                return url
        url = self._server.new_database()
        PostgresStore(url).connect().close()
        with _open(url) as connection:
            self._made[url] = _relations(connection)
            _keep_first_rows(connection, self._made[url])
        return url

    def give_back(self, url: str) -> None:
        """Says that a ledger is no longer used."""
        self._spare.append(url)

    def _clean(self, url: str) -> bool:
        try:
            with _open(url) as connection:
                connection.execute(_END_SESSIONS)
                found = _relations(connection)
                if not self._made[url] <= found:
                    return False
                with connection.transaction():
                    _drop(connection, found - self._made[url])
                    _restore(connection, self._made[url])
        except psycopg.Error:
            return False
        return True


def _open(url: str) -> Connection:
    return psycopg.connect(url, autocommit=True, options=f"-c lock_timeout={LOCK_WAIT_MS}")


def _relations(connection: Connection) -> frozenset[tuple[str, str]]:
    return frozenset((name, kind) for name, kind in connection.execute(_RELATIONS))


def _tables(relations: frozenset[tuple[str, str]]) -> list[str]:
    return sorted(name for name, kind in relations if kind == "r")


def _keep_first_rows(connection: Connection, made: frozenset[tuple[str, str]]) -> None:
    copies = [f'CREATE TABLE {_PRISTINE}."{name}" AS TABLE "{name}"' for name in _tables(made)]
    connection.execute(";".join([f"CREATE SCHEMA {_PRISTINE}", *copies]).encode())


def _drop(connection: Connection, relations: frozenset[tuple[str, str]]) -> None:
    for name in sorted(name for name, kind in relations if kind in "rp"):
        connection.execute(f'DROP TABLE IF EXISTS "{name}" CASCADE'.encode())


def _restore(connection: Connection, made: frozenset[tuple[str, str]]) -> None:
    work = ["SET LOCAL session_replication_role = replica"]  # foreign keys and triggers keep still
    for name in _tables(made):
        work.append(f'DELETE FROM "{name}"')
        work.append(f'INSERT INTO "{name}" OVERRIDING SYSTEM VALUE TABLE {_PRISTINE}."{name}"')
    work += [f'ALTER SEQUENCE "{name}" RESTART' for name, kind in made if kind == "S"]
    connection.execute(";".join(work).encode())
