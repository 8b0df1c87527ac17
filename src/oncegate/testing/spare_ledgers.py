"""Empty PostgreSQL ledgers that are used again: cleaning one costs a tenth of making a database.

For tests only. A ledger that comes back damaged, with a table gone or a connection that will not end, is
not handed out again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

import psycopg

from oncegate.stores.postgres import PostgresStore
from oncegate.testing.clock import ManualClock

LOCK_WAIT_MS: Final = 2_000
_PRISTINE: Final = "oncegate_pristine"  # a schema with the rows that migrations wrote
_END_SESSIONS: Final = (
    "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_RELATIONS: Final = (
    "SELECT relname::text, relkind::text, CASE relkind WHEN 'r' THEN pg_relation_size(oid) ELSE 0 END"
    " FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'S')"
)
# Nothing vacuums a test server. What was removed stays in its pages, and every use would read past it.
_LARGE_BYTES: Final = 64 * 1024
_CATALOGUE: Final = ["pg_attribute", "pg_class", "pg_depend", "pg_index", "pg_type", "pg_attrdef"]
_CATALOGUE_BYTES: Final = "SELECT sum(pg_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name"

Connection = psycopg.Connection[tuple[Any, ...]]


class _Made(NamedTuple):
    """A ledger as migrations left it: its relations with their kinds, and the tables that have rows."""

    relations: dict[str, str]
    filled: list[str]
    catalogue_bytes: int


class _Found(NamedTuple):
    """A ledger as a test left it: its relations with their kinds, the tables that have rows or had some."""

    relations: dict[str, str]
    filled: list[str]
    large: list[str]


class DatabaseServer(Protocol):
    """A server on which databases can be made."""

    def new_database(self) -> str:
        """Makes an empty database and returns its address."""


class SpareLedgers:
    """Ledgers on one server, each in a database of its own: fresh when taken."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._spare: list[str] = []
        self._made: dict[str, _Made] = {}

    def take(self) -> str:
        """The address of an empty ledger that no other test uses."""
        while self._spare:
            url = self._spare.pop()
            if self._clean(url):
                return url
        url = self._server.new_database()
        store = PostgresStore(url)
        store.connect().close()
        # Most tests live in these months; else each would make their partitions, to be dropped again.
        store.make_room(ManualClock().wall_ms())
        with _open(url) as connection:
            found = _relations(connection)
            _keep_first_rows(connection, found.filled)
            self._made[url] = _Made(found.relations, found.filled, _catalogue_bytes(connection))
        return url

    def give_back(self, url: str) -> None:
        """Says that a ledger is no longer used."""
        self._spare.append(url)

    def _clean(self, url: str) -> bool:
        try:
            with _open(url) as connection:
                connection.execute(_END_SESSIONS)
                made = self._made[url]
                found = _relations(connection)
                if not made.relations.items() <= found.relations.items():
                    return False
                with connection.transaction():
                    _drop(connection, found.relations.items() - made.relations.items())
                    _restore(connection, made, found)
                if _catalogue_bytes(connection) > 2 * made.catalogue_bytes:
                    connection.execute(f"VACUUM FULL {', '.join(_CATALOGUE)}".encode())
        except psycopg.Error:
            return False
        return True


def _open(url: str) -> Connection:
    return psycopg.connect(url, autocommit=True, options=f"-c lock_timeout={LOCK_WAIT_MS}")


def _relations(connection: Connection) -> _Found:
    found = sorted(connection.execute(_RELATIONS).fetchall())
    return _Found(
        {name: kind for name, kind, _ in found},
        [name for name, _, size in found if size > 0],
        [name for name, _, size in found if size > _LARGE_BYTES],
    )


def _catalogue_bytes(connection: Connection) -> int:
    ((size,),) = connection.execute(_CATALOGUE_BYTES, (_CATALOGUE,)).fetchall()
    return int(size)


def _keep_first_rows(connection: Connection, filled: list[str]) -> None:
    copies = [f'CREATE TABLE {_PRISTINE}."{name}" AS TABLE "{name}"' for name in filled]
    connection.execute(";".join([f"CREATE SCHEMA {_PRISTINE}", *copies]).encode())


def _drop(connection: Connection, relations: Iterable[tuple[str, str]]) -> None:
    for name in sorted(name for name, kind in relations if kind in "rp"):
        connection.execute(f'DROP TABLE IF EXISTS "{name}" CASCADE'.encode())


def _restore(connection: Connection, made: _Made, found: _Found) -> None:
    """Removes rows where there are any and brings the first ones back; a sequence begins again."""
    work = ["SET LOCAL session_replication_role = replica"]  # foreign keys and triggers keep still
    work += [f'DELETE FROM "{name}"' for name in found.filled if name in made.relations]
    # Gives the pages back, but makes new files: only where the next tests would pay for more. Tables that
    # migrations left with pages keep some: the plans of a new ledger depend on them.
    large = [name for name in found.large if name in made.relations and name not in made.filled]
    work += [f'TRUNCATE "{name}"' for name in large]
    work += [
        f'INSERT INTO "{name}" OVERRIDING SYSTEM VALUE TABLE {_PRISTINE}."{name}"' for name in made.filled
    ]
    sequences = [name for name, kind in made.relations.items() if kind == "S"]
    # Not ALTER SEQUENCE … RESTART, which makes a new file for each.
    work += [f"SELECT setval('\"{name}\"', 1, false)" for name in sequences]
    connection.execute(";".join(work).encode())
