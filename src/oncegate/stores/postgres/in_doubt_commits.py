"""Server processes that may still be committing what their client has given up on.

A lost connection does not stop the server: it may still be waiting for a lock or a disk and commit later,
after a reader has looked and found nothing. So those processes are ended before any reading; what is
not there then never comes. What is there may be known to this server only: one that waits for a synchronous
standby shows its commit as soon as it is ended. So a commit of our own follows, which waits for the standby
behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import psycopg
from msgspec import Struct

from oncegate.errors import StoreUnavailable
from oncegate.stores.postgres.failures import translate

END_WAIT_MS: Final = 5_000
# A process number may have been used again; together with its start it names one process for ever.
_END: Final = (
    "SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"
)
# Nothing but a record in the server's log: it locks no row, and its commit is as durable as any other.
_FOLLOW: Final = "SELECT pg_logical_emit_message(true, 'oncegate', 'doubt')"
_SELF: Final = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"

Query = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]


class Backend(Struct, frozen=True):
    """One process of the server."""

    pid: int
    started: Any


def backend_of(connection: psycopg.Connection[tuple[Any, ...]]) -> Backend:
    """The server's process at the other end of a connection."""
    try:
        pid, started = connection.execute(_SELF).fetchone() or (0, None)
    except psycopg.Error as error:
        raise translate(error, committing=False) from error
    return Backend(pid, started)


class Doubts:
    """The processes in doubt of one store, shared by its sessions."""

    def __init__(self) -> None:
        self._backends: dict[Backend, None] = {}

    def add(self, backend: Backend) -> None:
        """Notes a process whose last commit is in doubt."""
        self._backends[backend] = None

    def settle(self, query: Query) -> None:
        """Ends every process in doubt; raises if one does not end, because its commit may still come."""
        for backend in list(self._backends):
            rows = query(_END, (END_WAIT_MS, backend.pid, backend.started))
            if rows and not rows[0][0]:
                raise StoreUnavailable("the server is still busy with a commit that is in doubt")
            self._backends.pop(backend, None)
        query(_FOLLOW, ())
