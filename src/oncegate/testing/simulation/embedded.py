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
from typing import Any, Final

from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.errors import StoreUnavailable, StoreUnknown
from oncegate.store import Capabilities
from oncegate.stores.sqlite import SqliteStore, schema
from oncegate.stores.sqlite.session import JoinedSession, SqliteSession
from oncegate.testing.simulation.store import CommitFault, no_fault

_PLACE: Final = Path(":memory:")


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


class EmbeddedSession(SqliteSession):
    """A session whose commits may get lost or be undone without anybody saying so."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Clock, fault: Callable[[], CommitFault]
    ) -> None:
        super().__init__(connection, _PLACE, clock)
        self._fault = fault

    @contextmanager
    def unit(self, *, wait: bool = True, single: bool = False) -> Iterator[None]:  # type: ignore[override]
        """One transaction."""
        fault = self._fault()
        if fault is CommitFault.DOWN:
            raise StoreUnavailable("the store is down")
        self.begin(True)
        try:
            yield
        except BaseException as error:
            self.undo(error)
            raise
        if fault is CommitFault.UNDONE:
            self._undo()
        else:
            self.commit()
        if fault is not CommitFault.NONE:
            raise StoreUnknown("no reply to the commit")

    def close(self) -> None:
        """Nothing: the connection is everybody's."""


class EmbeddedStore(SqliteStore):
    """The ledger in memory, as one of its users sees it: over a network."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Clock, fault: Callable[[], CommitFault] = no_fault
    ) -> None:
        super().__init__(_PLACE, clock=clock)
        self._connection = connection
        self._fault = fault

    @property
    def capabilities(self) -> Capabilities:
        """Those of the embedded ledger, but not in this process."""
        return replace(super().capabilities, is_local=False)

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
