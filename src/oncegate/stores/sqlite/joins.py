"""Finds the sqlite3 connection behind what a user gave as `tx=` on an embedded ledger.

Called by `SqliteStore.join` on the user's own thread. Must never commit or undo anything.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from oncegate.errors import UsageError
from oncegate.stores.shared.driver_detection import DriverKind, check_open, no_transaction, recognise


def connection_behind(transaction: object) -> sqlite3.Connection:
    """The sqlite3 connection with the user's open transaction."""
    kind, behind = recognise(transaction)
    if kind is DriverKind.SQLITE3:
        check_open(kind, behind)
        return behind  # type: ignore[no-any-return]
    if kind not in (DriverKind.SQLALCHEMY_SESSION, DriverKind.SQLALCHEMY_CONNECTION, DriverKind.DJANGO):
        raise _refused(transaction)
    check_open(kind, behind)
    found = _driver_connection(kind, behind)
    if not isinstance(found, sqlite3.Connection):
        raise UsageError("tx= is open on another database than the ledger's, which is a SQLite file")
    _begin_late(kind, found)
    return found


def _driver_connection(kind: DriverKind, behind: Any) -> object:
    if kind is DriverKind.DJANGO:
        return behind.connection
    connection = behind.connection() if kind is DriverKind.SQLALCHEMY_SESSION else behind
    return connection.connection.driver_connection


def _begin_late(kind: DriverKind, connection: sqlite3.Connection) -> None:
    """The library's transaction is open, but sqlite3 begins it only with the first write: that is ours."""
    if connection.in_transaction:
        return
    if connection.isolation_level is None:
        raise no_transaction(kind)  # every statement commits by itself
    connection.execute("BEGIN IMMEDIATE")


def _refused(transaction: object) -> UsageError:
    return UsageError(
        f"tx= is a {type(transaction).__name__}; on an embedded ledger give a sqlite3.Connection, or a "
        "SQLAlchemy session or connection that is not async, or Django's connection"
    )
