"""Which kind of transaction a user gave as `tx=`, told by its class alone.

Used by every store's `join`. Must never import a library for it: a program with such an object has loaded
the library already, and other programs must not pay for it.
"""

from __future__ import annotations

import sys
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from oncegate.errors import UsageError


class DriverKind(Enum):
    """What a user's transaction can be; the value is how to open one."""

    SQLITE3 = "run connection.execute('BEGIN IMMEDIATE') before it"
    PSYCOPG = "use it inside `with connection.transaction():`"
    PSYCOPG_ASYNC = "use the psycopg connection inside `async with connection.transaction():`"
    ASYNCPG = "use the asyncpg connection inside `async with connection.transaction():`"
    SQLALCHEMY_SESSION = "use it inside `with session.begin():`"
    SQLALCHEMY_CONNECTION = "use it inside `with connection.begin():`"
    SQLALCHEMY_ASYNC_SESSION = "use it inside `async with session.begin():`"
    SQLALCHEMY_ASYNC_CONNECTION = "use it inside `async with connection.begin():`"
    DJANGO = "use it inside `with transaction.atomic():`"


_CLASSES: Final = {
    ("sqlite3", "Connection"): DriverKind.SQLITE3,
    ("psycopg", "Connection"): DriverKind.PSYCOPG,
    ("psycopg", "AsyncConnection"): DriverKind.PSYCOPG_ASYNC,
    ("asyncpg", "Connection"): DriverKind.ASYNCPG,
    ("asyncpg", "PoolConnectionProxy"): DriverKind.ASYNCPG,
    ("sqlalchemy", "Session"): DriverKind.SQLALCHEMY_SESSION,
    ("sqlalchemy", "Connection"): DriverKind.SQLALCHEMY_CONNECTION,
    ("sqlalchemy", "AsyncSession"): DriverKind.SQLALCHEMY_ASYNC_SESSION,
    ("sqlalchemy", "AsyncConnection"): DriverKind.SQLALCHEMY_ASYNC_CONNECTION,
    ("django", "BaseDatabaseWrapper"): DriverKind.DJANGO,
}
_SCOPED: Final = {("sqlalchemy", "scoped_session"), ("sqlalchemy", "async_scoped_session")}
_PROXY: Final = ("django", "ConnectionProxy")
_LIBPQ_OPEN: Final = (1, 2, 3)  # active, in a transaction, in a failed one; 0 is idle, 4 is closed


def recognise(transaction: Any) -> tuple[DriverKind | None, Any]:
    """Finds the kind of a user's transaction, also of a subclass, and the object behind a stand-in."""
    given: Any = type(transaction)
    kind, is_scoped, is_proxy = _look_at(given)
    if is_scoped:
        return recognise(transaction())
    return (DriverKind.DJANGO, _behind_proxy(transaction)) if is_proxy else (kind, transaction)


@lru_cache(maxsize=64)
def _look_at(given: type[object]) -> tuple[DriverKind | None, bool, bool]:
    """The kind of a class, whether it lends out another object, and whether it stands for one."""
    names = [(one.__module__.partition(".")[0], one.__name__) for one in given.__mro__]
    kind = next((_CLASSES[name] for name in names if name in _CLASSES), None)
    return kind, not _SCOPED.isdisjoint(names), _PROXY in names


def _behind_proxy(proxy: Any) -> Any:
    """Django's `connection` stands for another object in every thread: this is the calling one's."""
    return sys.modules["django.db"].connections[proxy.alias]


def is_open(kind: DriverKind, transaction: Any) -> bool:
    """Tells whether the user's transaction is open, by the library's own word."""
    if kind is DriverKind.SQLITE3:
        return bool(transaction.in_transaction)
    if kind in (DriverKind.PSYCOPG, DriverKind.PSYCOPG_ASYNC):
        return transaction.info.transaction_status in _LIBPQ_OPEN
    if kind is DriverKind.ASYNCPG:
        return bool(transaction.is_in_transaction())
    if kind is DriverKind.DJANGO:
        return bool(transaction.in_atomic_block)
    return bool(transaction.in_transaction())


def is_still_open(kind: DriverKind, transaction: Any) -> bool:
    """The same, after the handler may have closed or given back what it used."""
    try:
        return is_open(kind, transaction)
    except Exception:  # noqa: BLE001  each library has its own error for what is closed: nothing is open
        return False


def check_open(kind: DriverKind, transaction: Any) -> None:
    """Raises unless there is a transaction to join."""
    if not is_open(kind, transaction):
        raise no_transaction(kind)


def no_transaction(kind: DriverKind) -> UsageError:
    """There is nothing to join: every statement would commit by itself."""
    return UsageError(f"tx= has no transaction open; {kind.value}")
