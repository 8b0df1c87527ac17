"""The schema of the embedded ledger: numbered SQL files, applied in order, each in one transaction.

Called when a session opens and by `oncegate migrate`. Must never touch a schema newer than it knows.
"""

from __future__ import annotations

import sqlite3
from importlib import resources
from typing import Final

from oncegate.errors import SchemaMismatch
from oncegate.store import Migration

_VERSION: Final = "SELECT value FROM oncegate_meta WHERE name = 'schema'"
_RECORD: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES ('schema', {number})"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value;"
)
_HAS_META: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'oncegate_meta'"


def all_migrations() -> list[Migration]:
    """Reads the shipped migrations in order."""
    folder = resources.files("oncegate.stores.sqlite") / "migrations"
    files = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return [_read(name, (folder / name).read_text("utf-8")) for name in files]


def _read(name: str, sql: str) -> Migration:
    number, _, title = name.removesuffix(".sql").partition("_")
    return Migration(int(number), title.replace("_", " "), sql, _RECORD.format(number=int(number)))


def schema_version(connection: sqlite3.Connection) -> int:
    """Tells which migration the ledger has come to; 0 for none."""
    if connection.execute(_HAS_META).fetchone() is None:
        return 0
    row = connection.execute(_VERSION).fetchone()
    return int(row[0]) if row else 0


def pending(connection: sqlite3.Connection) -> list[Migration]:
    """Lists what is still to be applied; refuses a ledger from the future."""
    known = all_migrations()
    version = schema_version(connection)
    if version > known[-1].number:
        raise SchemaMismatch(
            f"the ledger has schema {version}, this version of oncegate knows {known[-1].number}; "
            "install the newer oncegate that wrote it"
        )
    return [migration for migration in known if migration.number > version]


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
