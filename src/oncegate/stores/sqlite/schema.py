"""The schema of the embedded ledger: numbered SQL files, applied in order, in one transaction.

Called when a session opens and by `oncegate migrate`. Must never touch a schema newer than it knows.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from typing import Final

from oncegate.store import Migration
from oncegate.stores.shared.migrations import (
    READ_VERSION,
    contradiction,
    made_by,
    read_migrations,
    still_needed,
    version_recorded,
)

_RECORD: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES ('schema_version', {number})"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value;"
)
_HAS_META: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'oncegate_meta'"
_THINGS: Final = "SELECT type, name FROM sqlite_master WHERE name GLOB 'oncegate_*'"

Thing = tuple[str, str]  # its type and its name


def all_migrations() -> list[Migration]:
    """Reads the shipped migrations in order."""
    return read_migrations("oncegate.stores.sqlite", _RECORD)


def schema_version(connection: sqlite3.Connection) -> int:
    """Tells which migration the ledger has come to; 0 for none."""
    if connection.execute(_HAS_META).fetchone() is None:
        return 0
    return version_recorded(connection.execute(READ_VERSION).fetchall())


def pending(connection: sqlite3.Connection) -> list[Migration]:
    """Lists what is still to be applied; refuses a newer ledger, and one that contradicts itself.

    Called inside a transaction: what others make meanwhile would seem to contradict the number.
    """
    needed = _needed(connection)
    present = {name for _, name in _things(connection)} if needed else set()
    for name in made_by(needed):
        if name in present:
            raise contradiction(schema_version(connection), name, needed)
    return needed


def _needed(connection: sqlite3.Connection) -> list[Migration]:
    return still_needed(all_migrations(), schema_version(connection))


def lost_in(connection: sqlite3.Connection) -> list[str]:
    """What the migrations made and is no longer there."""
    return [f"{kind} {name}" for kind, name in sorted(_made() - _things(connection))]


@cache
def _made() -> frozenset[Thing]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        apply_pending(connection)
        return _things(connection)


def _things(connection: sqlite3.Connection) -> frozenset[Thing]:
    return frozenset(connection.execute(_THINGS).fetchall())


def apply_pending(connection: sqlite3.Connection) -> list[Migration]:
    """Applies what is pending; several processes may do so at once."""
    if not _needed(connection):
        return []
    connection.execute("BEGIN IMMEDIATE")
    try:
        migrations = pending(connection)
        for migration in migrations:
            _apply(connection, migration)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return migrations


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    for statement in split_statements(migration.sql):
        connection.execute(statement)
    connection.execute(migration.record)


@cache
def split_statements(sql: str) -> tuple[str, ...]:
    """Splits a migration into statements, so that all of them run inside one transaction."""
    statements: list[str] = []
    current = ""
    for line in sql.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return tuple(statements)
