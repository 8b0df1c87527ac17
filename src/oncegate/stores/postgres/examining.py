"""What `oncegate doctor` finds out about a PostgreSQL server and the ledger on it. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg

from oncegate.errors import SchemaMismatch, StoreUnavailable
from oncegate.store import Finding
from oncegate.stores.postgres import catalogue, eras, poolers, schema
from oncegate.stores.postgres.incarnation import examine_sight, may_see_system
from oncegate.stores.postgres.limits import LimitedConnection
from oncegate.stores.postgres.replication import examine_replication
from oncegate.stores.postgres.scanning import examine_scan

DURABLE_SETTINGS: Final = ("fsync", "full_page_writes", "synchronous_commit")
DURABLE: Final = frozenset({"on", "local", "remote_write", "remote_apply"})

Connection = psycopg.Connection[tuple[Any, ...]]


def examine_server(connection: Connection, another: Callable[[], LimitedConnection]) -> list[Finding]:
    """Looks at the server, its settings and the schema; `another` opens a connection like this one."""
    version = connection.info.server_version
    server = Finding(True, "server", f"PostgreSQL {version // 10000}.{version % 10000}")
    pooler = _examine_pooler(connection, another)
    if pooler is not None and not pooler.ok:
        return [server, pooler]
    shape = _examine_schema(connection)
    return [
        server,
        *([] if pooler is None else [pooler]),
        *_examine_settings(connection),
        shape,
        *examine_sight(connection),
        *(_examine_log(connection) if shape.ok else ()),
    ]


def _examine_pooler(connection: Connection, another: Callable[[], LimitedConnection]) -> Finding | None:
    if not poolers.is_pooled(connection):
        return None
    try:
        poolers.refuse_transaction_mode(connection, another)
    except StoreUnavailable as error:
        return Finding(False, "pooler", "not in session mode", str(error))
    return Finding(True, "pooler", "one is in between, in session mode (docs/postgresql.md)")


def _examine_settings(connection: Connection) -> Iterator[Finding]:
    for setting in DURABLE_SETTINGS:
        (value,) = connection.execute(f"SHOW {setting}".encode()).fetchone() or ("",)
        safe = value in DURABLE
        step = "" if safe else f"set {setting}=on: acknowledged commits can be lost"
        yield Finding(safe, setting, value, step)
    yield examine_replication(connection)


def _examine_schema(connection: Connection) -> Finding:
    """What a migration made and is no longer there."""
    try:
        version = schema.schema_version(connection)
    except SchemaMismatch as error:
        return Finding(False, "schema", "not of this version", str(error))
    lost = catalogue.lost_in(connection)
    if lost:
        value = f"{version}, but without {catalogue.names_of(lost)}"
        return Finding(False, "schema", value, lost[0].next_step)
    return Finding(True, "schema", f"{version}")


def _examine_log(connection: Connection) -> Iterator[Finding]:
    """A ledger that was restored from a dump: its transaction numbers are another server's."""
    kept = eras.eras_of(connection.execute(eras.READ).fetchall())
    server = kept.server
    if may_see_system(connection):
        (server,) = connection.execute(eras.SERVER).fetchone() or ("",)
    if eras.is_due(connection, server) and eras.is_ahead(connection):
        yield Finding(
            False,
            "log",
            "records are numbered beyond this server's transactions",
            "the ledger was restored from a dump, and no process with the right to write oncegate_meta has "
            "opened it since: run `oncegate migrate`",
        )
    elif kept.last:
        yield Finding(True, "log", f"restored from dumps: {kept.last} (docs/postgresql.md)")
    waiting = examine_scan(connection)
    if waiting is not None:
        yield waiting
