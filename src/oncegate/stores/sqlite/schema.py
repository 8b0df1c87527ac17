"""The schema of the embedded ledger: numbered SQL files, applied in order, each in one transaction.

Called when a session opens and by `oncegate migrate`. Must never touch a schema newer than it knows.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from oncegate.store import Migration
from oncegate.stores.migrations import read_migrations, still_needed
from oncegate.stores.sqlite.files import damaged, stored_number

_VERSION: Final = "SELECT value FROM oncegate_meta WHERE name = 'schema'"
_RECORD: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES ('schema', {number})"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value;"
)
_HAS_META: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'oncegate_meta'"


def all_migrations() -> list[Migration]:
    """Reads the shipped migrations in order."""
    return read_migrations("oncegate.stores.sqlite", _RECORD)


def schema_version(connection: sqlite3.Connection) -> int:
    """Tells which migration the ledger has come to; 0 for none."""
    if connection.execute(_HAS_META).fetchone() is None:
        return 0
    row = connection.execute(_VERSION).fetchone()
    if row is None:  # it is written with the table itself
        raise damaged("it does not say which schema it has")
    return stored_number("schema", row[0])


def pending(connection: sqlite3.Connection) -> list[Migration]:
    """Lists what is still to be applied; refuses a ledger from the future."""
    return still_needed(all_migrations(), schema_version(connection))


def apply_pending(connection: sqlite3.Connection) -> list[Migration]:
    """Applies what is pending; several processes may do so at once."""
    if not pending(connection):
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


def split_statements(sql: str) -> list[str]:
    """Splits a migration into statements, so that all of them run inside one transaction."""
    statements: list[str] = []
    current = ""
    for line in sql.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements
