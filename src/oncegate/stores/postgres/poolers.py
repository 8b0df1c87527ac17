"""A pooler between us and the server: found out about, and refused where it shares servers between clients.

In session mode a client has a server process of its own until it leaves, and nothing is different. In
transaction mode it has another one in every transaction: settings and prepared statements are lost, and
the process that may still be committing after a lost reply can be another client's by then, so no doubt
could be settled (I5). Called by the store when it connects. Must never call a direct connection pooled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import psycopg

from oncegate.errors import StoreUnavailable
from oncegate.stores.postgres.limits import LimitedConnection

PROBES_MAX: Final = 3  # other clients' transactions that are opened beside, to take the server away
PROBE_WAIT_MS: Final = 3_000  # a pool without a free server lets one wait
_PID: Final = "SELECT pg_backend_pid()"
_UNSUPPORTED: Final = "unsupported startup parameter"
_NO_BLOCKS: Final = "statement pooling mode"
_LOST: Final = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)
TRANSACTION_MODE: Final = (
    "a pooler in transaction or statement mode is in between: set pool_mode=session for this database, or "
    "point the address at the server itself (docs/postgresql.md)"
)

Connection = psycopg.Connection[tuple[Any, ...]]


def refuses_options(error: psycopg.Error) -> bool:
    """Whether a pooler has refused the connection because it was asked for settings."""
    return _UNSUPPORTED in str(error) and "options" in str(error)


def is_pooled(connection: Connection) -> bool:
    """A pooler tells its clients process numbers of its own."""
    return _server_of(connection) != connection.info.backend_pid


def is_shared_server(error: psycopg.Error) -> bool:
    """What a statement that was prepared on another server process ends with."""
    return isinstance(error, _LOST)


def refuse_transaction_mode(connection: Connection, another: Callable[[], LimitedConnection]) -> None:
    """Raises if the pooler gives a connection another server process while it is open.

    Transactions of further connections take the server away that was used last, if it can be taken.
    """
    first = _server_of(connection)
    with ExitStack() as stack:
        for _ in range(PROBES_MAX):
            other = stack.enter_context(another())
            if not _holds_a_server(other):
                return  # there is none to be had but the one that is ours
            if _server_of(connection) != first:
                raise StoreUnavailable(TRANSACTION_MODE)


def _holds_a_server(other: LimitedConnection) -> bool:
    other.answer_wait_ms = PROBE_WAIT_MS
    try:
        other.execute("BEGIN", prepare=False)
        other.execute(_PID, prepare=False)
    except psycopg.OperationalError as error:
        if _NO_BLOCKS in str(error):
            raise StoreUnavailable(TRANSACTION_MODE) from error
        return False
    return True


def _server_of(connection: Connection) -> int:
    (pid,) = connection.execute(_PID, prepare=False).fetchone() or (0,)
    return int(pid)
