"""The schema of the PostgreSQL ledger: numbered SQL files under an advisory lock."""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

import psycopg

from oncegate.errors import SchemaMismatch
from oncegate.store import Migration

_LOCK: Final = "SELECT pg_advisory_xact_lock(7229, 1)"  # any two numbers; ours for migrations
_HAS_META: Final = "SELECT to_regclass('oncegate_meta') IS NOT NULL"
_VERSION: Final = "SELECT value::int FROM oncegate_meta WHERE name = 'schema'"
_RECORD: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES ('schema', '{number}')"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value;"
)

Connection = psycopg.Connection[tuple[Any, ...]]


def all_migrations() -> list[Migration]:
    """Reads the shipped migrations in order."""
    folder = resources.files("oncegate.stores.postgres") / "migrations"
    files = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return [_read(name, (folder / name).read_text("utf-8")) for name in files]


def _read(name: str, sql: str) -> Migration:
    number, _, title = name.removesuffix(".sql").partition("_")
    return Migration(int(number), title.replace("_", " "), sql, _RECORD.format(number=int(number)))


def pending(connection: Connection) -> list[Migration]:
    """Lists what is still to be applied; refuses a ledger from the future."""
    known = all_migrations()
    version = schema_version(connection)
    if version > known[-1].number:
        raise SchemaMismatch(
            f"the ledger has schema {version}, this version of oncegate knows {known[-1].number}; "
            "install the newer oncegate that wrote it"
        )
    return [migration for migration in known if migration.number > version]


def schema_version(connection: Connection) -> int:
    """Tells which migration the ledger has come to; 0 for none."""
    row = connection.execute(_HAS_META).fetchone()
    if row is None or not row[0]:
        return 0
    version = connection.execute(_VERSION).fetchone()
    return int(version[0]) if version else 0


def apply_pending(connection: Connection) -> list[Migration]:
    """Applies what is pending in one transaction; several processes may do so at once."""
    if not pending(connection):
        return []
    with connection.transaction():
        connection.execute(_LOCK)
        migrations = pending(connection)
        for migration in migrations:
            connection.execute(migration.sql.encode())
            connection.execute(migration.record.encode())
    return migrations
