"""The embedded ledger's own statements in a simulation: a database in memory, whose commits fail as told.

Every session of a simulated world shares one connection: in a virtual loop no unit ever meets another. A
crash needs nothing here, as a unit never waits in the middle.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.errors import StoreUnavailable, StoreUnknown
from oncegate.store import Capabilities
from oncegate.stores.sqlite import SqliteStore, schema
from oncegate.stores.sqlite.session import JoinedSession, SqliteSession, SqliteUnit
from oncegate.testing.simulation.store import CommitFault, fault_of, no_fault

_PLACE: Final = Path(":memory:")
STATEMENTS_KEPT: Final = 512  # more than there are


@cache
def _image() -> bytes:
    """An empty ledger; copying it costs a hundredth of making one."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        schema.apply_pending(connection)
        return connection.serialize()
    finally:
        connection.close()


def new_database() -> sqlite3.Connection:
    """An empty ledger in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.deserialize(_image())
    return connection


class Slate:
    """One database in memory for many simulations after each other.

    What it held when the slate was made is there again after `wipe`. Its statements stay prepared, which
    costs more than running them.
    """

    def __init__(self, image: bytes) -> None:
        self.connection = sqlite3.connect(
            ":memory:", isolation_level=None, cached_statements=STATEMENTS_KEPT, check_same_thread=False
        )
        self.connection.deserialize(image)
        names = self.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        self._rows = {
            name: self.connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in names
        }

    def wipe(self) -> None:
        """Puts everything back."""
        execute = self.connection.execute
        if self.connection.in_transaction:
            execute("ROLLBACK")
        execute("BEGIN")
        for name, rows in self._rows.items():
            execute(f"DELETE FROM {name}")
            if rows:
                places = ", ".join("?" * len(rows[0]))
                self.connection.executemany(f"INSERT INTO {name} VALUES ({places})", rows)
        execute("COMMIT")


class EmbeddedUnit(SqliteUnit):
    """One transaction, whose commit may go wrong."""

    __slots__ = ("_fault", "_what_goes_wrong")

    def __init__(self, session: EmbeddedSession, what_goes_wrong: Callable[[], CommitFault]) -> None:
        super().__init__(session, wait=True)
        self._what_goes_wrong = what_goes_wrong
        self._fault = CommitFault.NONE

    def __enter__(self) -> None:
        self._fault = fault_of(self._what_goes_wrong)
        super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._fault is CommitFault.UNDONE:
            self._session.undo(None)
        else:
            super().__exit__(kind, error, trace)
        if kind is None and self._fault is not CommitFault.NONE:
            raise StoreUnknown("no reply to the commit")


class EmbeddedSession(SqliteSession):
    """A session whose commits may get lost or be undone without a report."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Clock, fault: Callable[[], CommitFault]
    ) -> None:
        super().__init__(connection, _PLACE, clock)
        self._fault = fault

    def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> EmbeddedUnit:
        """One transaction."""
        return EmbeddedUnit(self, self._fault)

    def close(self) -> None:
        """Nothing: the connection is shared."""


class EmbeddedStore(SqliteStore):
    """The ledger in memory, as one of its users sees it: over a network."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Clock, fault: Callable[[], CommitFault] = no_fault
    ) -> None:
        super().__init__(_PLACE, clock=clock)
        self._connection = connection
        self._fault = fault
        self._capabilities = replace(super().capabilities, is_local=False)

    @property
    def capabilities(self) -> Capabilities:
        """Those of the embedded ledger, but not in this process."""
        return self._capabilities

    def exists(self) -> bool:
        """Always."""
        return True

    def disconnect(self) -> None:
        """Nothing to undo when a worker dies: see above."""

    def connect(self) -> Any:
        """Opens a session."""
        return EmbeddedSession(self._connection, self._clock, self._fault)

    @contextmanager
    def look(self, *, again: bool = False) -> Iterator[JoinedSession]:
        """Reads what is there."""
        if self._fault is not no_fault and self._fault() is CommitFault.DOWN:
            raise StoreUnavailable("the store is down")
        yield JoinedSession(self._connection, _PLACE, self._clock)
