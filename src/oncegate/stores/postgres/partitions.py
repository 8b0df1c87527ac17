"""Month partitions of payloads and outcomes: made ahead, dropped when empty.

Nothing is wrong without them: a body whose month has no partition goes to the default one. That is why
everything here gives up rather than waits, and why a lack of privilege is no error. The key table is never
split: a key is unique for ever, not for a month.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import errors as postgres

from oncegate.clock import from_wall_ms

MONTHS_AHEAD: Final = 2  # a ledger that nobody looks after for two months still has its partitions
MOVED_MAX: Final = 20_000  # rows that are moved out of the default partition while writers wait
DROPPED_AFTER: Final = timedelta(days=1)  # after the end of a month, so that clocks may differ
_TABLES: Final = ("oncegate_payload", "oncegate_outcome")
_LOCK: Final = "SELECT pg_advisory_xact_lock(7229, 2)"  # migrations have (7229, 1)
_PATIENCE: Final = (
    "SELECT set_config('lock_timeout', '500ms', true), set_config('statement_timeout', '5s', true)"
)
_MISSING: Final = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL"
_PARTITIONS: Final = """
SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = to_regclass(%s) ORDER BY child.relname
"""
_NOT_NOW: Final = (
    postgres.LockNotAvailable,
    postgres.QueryCanceled,
    postgres.DeadlockDetected,
    postgres.InsufficientPrivilege,
    postgres.ReadOnlySqlTransaction,
)

Connection = psycopg.Connection[tuple[Any, ...]]


def ensure_partitions(connection: Connection, now_ms: int) -> list[str]:
    """Makes the partitions of this month and the next ones; returns the names of those it made."""
    if not _missing(connection, now_ms):
        return []
    try:
        with connection.transaction():
            connection.execute(_LOCK)
            connection.execute(_PATIENCE)
            missing = _missing(connection, now_ms)
            return [name for name in missing if _make(connection, name)]
    except _NOT_NOW:
        return []


def _missing(connection: Connection, now_ms: int) -> list[str]:
    wanted = [f"{table}_{month}" for table in _TABLES for month in _months(now_ms)]
    return [name for (name,) in connection.execute(_MISSING, (wanted,)).fetchall()]


def _months(now_ms: int) -> Iterator[int]:
    first = _month_start(from_wall_ms(now_ms))
    for _ in range(MONTHS_AHEAD + 1):
        yield first.year * 100 + first.month
        first = _next_month(first)


def _month_start(moment: datetime) -> datetime:
    return datetime(moment.year, moment.month, 1, tzinfo=UTC)


def _next_month(first: datetime) -> datetime:
    return _month_start(first + timedelta(days=31))


def _make(connection: Connection, name: str) -> bool:
    """Makes a partition, with the rows that went to the default one meanwhile unless they are many."""
    table, _, month = name.rpartition("_")
    _run(connection, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
    count = f"SELECT count(*) FROM (SELECT FROM {table}_other WHERE month = {month} LIMIT {MOVED_MAX + 1})"
    ((waiting,),) = _run(connection, f"{count} AS waiting")
    if waiting > MOVED_MAX:
        return False
    _run(connection, f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
    if waiting:
        moved = f"WITH moved AS (DELETE FROM {table}_other WHERE month = {month} RETURNING *)"
        _run(connection, f"{moved} INSERT INTO {name} SELECT * FROM moved")
    _run(connection, f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES IN ({month})")
    return True


def drop_empty_months(connection: Connection, now_ms: int) -> list[str]:
    """Drops partitions of past months that hold no body of a known entry; returns their names."""
    found = [
        name
        for table in _TABLES
        for (name,) in connection.execute(_PARTITIONS, (table,)).fetchall()
        if _is_past(name, now_ms)
    ]
    return [name for name in found if _drop(connection, name)]


def _is_past(name: str, now_ms: int) -> bool:
    digits = name.rpartition("_")[2]
    if not digits.isdigit():
        return False
    year, month = divmod(int(digits), 100)
    end = _next_month(datetime(year, month, 1, tzinfo=UTC))
    return from_wall_ms(now_ms) >= end + DROPPED_AFTER


def _drop(connection: Connection, name: str) -> bool:
    try:
        if _is_used(connection, name):
            return False
        with connection.transaction():
            connection.execute(_PATIENCE)
            _run(connection, f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
            if _is_used(connection, name):
                return False
            _run(connection, f"DROP TABLE {name}")
    except _NOT_NOW:
        return False
    return True


def _is_used(connection: Connection, name: str) -> bool:
    sql = f"SELECT EXISTS (SELECT FROM {name} AS body JOIN oncegate_entry ON id = body.entry)"
    ((used,),) = _run(connection, sql)
    return bool(used)


def _run(connection: Connection, sql: str) -> list[tuple[Any, ...]]:
    cursor = connection.execute(sql.encode())
    return cursor.fetchall() if cursor.description else []
