"""The schema of the PostgreSQL ledger: numbered SQL files under an advisory lock."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import psycopg

from oncegate.store import Migration
from oncegate.stores.migrations import read_migrations, still_needed

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
    return read_migrations("oncegate.stores.postgres", _RECORD)


@cache
def newest() -> int:
    """The number of the last migration that this version knows."""
    return all_migrations()[-1].number


def pending(connection: Connection) -> list[Migration]:
    """Lists what is still to be applied; refuses a ledger from the future."""
    return still_needed(all_migrations(), schema_version(connection))


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
