"""The schema of the PostgreSQL ledger: numbered SQL files under an advisory lock."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import psycopg
from psycopg import errors as postgres

from oncegate.errors import SchemaMismatch
from oncegate.store import Migration
from oncegate.stores.postgres.failures import first_line
from oncegate.stores.shared.migrations import (
    READ_VERSION,
    contradiction,
    made_by,
    read_migrations,
    still_needed,
    version_recorded,
)

_LOCK: Final = "SELECT pg_advisory_xact_lock(7229, 1)"  # any two numbers; ours for migrations
_HAS_TABLE: Final = "SELECT to_regclass(%s) IS NOT NULL"
_PRESENT: Final = (
    "SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS made (name, place)"
    " WHERE to_regclass(name) IS NOT NULL ORDER BY place LIMIT 1"
)
_UNFIT: Final = (
    postgres.DuplicateTable,
    postgres.DuplicateColumn,
    postgres.DuplicateFunction,
    postgres.DuplicateObject,
    postgres.UndefinedTable,
    postgres.UndefinedColumn,
    postgres.UndefinedFunction,
)
_RECORD: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES ('schema_version', '{number}')"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value;"
)

Connection = psycopg.Connection[tuple[Any, ...]]


def all_migrations() -> list[Migration]:
    """Reads the shipped migrations in order."""
    return read_migrations("oncegate.stores.postgres", _RECORD)


@cache
def newest() -> int:
    """The number of the last migration that this version knows."""
    return all_migrations()[-1].number


def exists(connection: Connection) -> bool:
    """Tells whether there is anything of a ledger, whole or not."""
    return any(_has(connection, table) for table in ("oncegate_meta", "oncegate_entry"))


def pending(connection: Connection) -> list[Migration]:
    """Lists what is still to be applied; refuses a newer ledger, and one that contradicts itself."""
    if not _needed(connection):
        return []
    with connection.transaction():
        return _needed_alone(connection)


def _needed(connection: Connection) -> list[Migration]:
    return still_needed(all_migrations(), schema_version(connection))


def _needed_alone(connection: Connection) -> list[Migration]:
    """The same while no other process migrates: its changes would seem to contradict the number."""
    connection.execute(_LOCK)
    needed = _needed(connection)
    if needed:
        _refuse_contradiction(connection, needed)
    return needed


def _refuse_contradiction(connection: Connection, needed: list[Migration]) -> None:
    row = connection.execute(_PRESENT, (list(made_by(needed)),)).fetchone()
    if row is not None:
        raise contradiction(schema_version(connection), str(row[0]), needed)


def schema_version(connection: Connection) -> int:
    """Tells which migration the ledger has come to; 0 for none."""
    if not _has(connection, "oncegate_meta"):
        return 0
    return version_recorded(connection.execute(READ_VERSION).fetchall())


def _has(connection: Connection, table: str) -> bool:
    row = connection.execute(_HAS_TABLE, (table,)).fetchone()
    return row is not None and bool(row[0])


def apply_pending(connection: Connection) -> list[Migration]:
    """Applies what is pending in one transaction; several processes may do so at once."""
    if not _needed(connection):
        return []
    with connection.transaction():
        migrations = _needed_alone(connection)
        for migration in migrations:
            _apply(connection, migration)
    return migrations


def _apply(connection: Connection, migration: Migration) -> None:
    try:
        connection.execute(migration.sql.encode())
        connection.execute(migration.record.encode())
    except _UNFIT as error:
        raise SchemaMismatch(
            f"migration {migration.number:04} {migration.name} does not fit this database "
            f"({first_line(error)}): something of the ledger was removed or made by hand; nothing was "
            "changed; restore the database from a backup, or use an empty one"
        ) from error
