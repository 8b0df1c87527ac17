"""A PostgreSQL ledger on Django's own connection, with savepoints for transactions; only for tests.

See `nested`. The session sends what it always sends; the wire replaces BEGIN, COMMIT and ROLLBACK.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq import TransactionStatus

from oncegate.contrib.django.addresses import address_of
from oncegate.store import ALL_FACETS, AuditTrail, Capabilities, Durability
from oncegate.stores.postgres.arrays import Packed, PackedDumper
from oncegate.stores.postgres.session import PostgresSession
from oncegate.stores.postgres.store import PostgresStore
from oncegate.stores.postgres.tidying import Tidying
from oncegate.stores.postgres.wire import BEGIN, COMMIT, ROLLBACK, Rows, Wire, WireCommand

_SAVEPOINT, _RELEASE = WireCommand("SAVEPOINT oncegate"), WireCommand("RELEASE SAVEPOINT oncegate")
_ROLLBACK_TO = WireCommand("ROLLBACK TO SAVEPOINT oncegate")
_wires: WeakKeyDictionary[Any, _OwnTypesWire] = WeakKeyDictionary()


class _OwnTypes:
    """How values are sent: as on the ledger's own connections, whatever Django registers on its own."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_dumper(Packed, PackedDumper)


class _OwnTypesWire(Wire):
    """One for each of Django's connections: what it has prepared stays there from test to test."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._transformer = Transformer(_OwnTypes(connection))


class _Savepoints:
    """A wire whose transactions are savepoints of the one that is open."""

    def __init__(self, connection: Any, wire: Wire) -> None:
        self._connection, self._wire = connection, wire
        self.is_inside = False
        self.last_status: bytes | None = None

    @property
    def failed_at(self) -> int | None:
        """Which command of the last exchange the server refused."""
        return self._wire.failed_at

    def is_silent(self) -> bool:
        """Whether nothing has come that was not asked for."""
        return self._wire.is_silent()

    def send(self, commands: Sequence[WireCommand], then: Sequence[WireCommand] = ()) -> list[Rows]:
        """Sends statements together; see `Wire.send`."""
        if self._connection.info.transaction_status is TransactionStatus.IDLE:
            self._connection.execute("SELECT 1")  # the driver begins Django's transaction this late
        self.is_inside = self.is_inside or BEGIN in commands
        if ROLLBACK in commands:
            self.is_inside = False
            return self._wire.send([_ROLLBACK_TO, _RELEASE])[:1]
        found = self._wire.send([_IN_PLACE_OF.get(one, one) for one in commands], then)
        self.last_status = self._wire.last_status
        if COMMIT in commands:
            self.is_inside, self.last_status = False, b"COMMIT"
        return found


_IN_PLACE_OF: Final = {BEGIN: _SAVEPOINT, COMMIT: _RELEASE}


class _NestedPostgresSession(PostgresSession):
    def _use(self, connection: Any) -> None:
        if connection not in _wires:
            _wires[connection] = _OwnTypesWire(connection)
        self._connection = connection
        self._wire = _Savepoints(connection, _wires[connection])  # type: ignore[assignment]
        self._tidying, self._ran_users, self._waits_long, self._backend = _nothing(), False, True, None

    @contextmanager
    def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> Iterator[None]:
        """Always a savepoint: a statement that fails must not take the test's transaction with it."""
        with super().unit(wait=wait):
            yield

    def _undo(self) -> None:
        self._names.forget()
        self._in_transaction = self._begin_is_due = self._ran_users = False
        self._fused = None
        if self._wire.is_inside:  # type: ignore[attr-defined]
            self._wire.send([ROLLBACK])

    def close(self) -> None:
        """Leaves Django's connection alone."""


def _nothing() -> Tidying:
    found = Tidying(("", ""))
    found.before, found.after = WireCommand("SELECT 1"), ()
    return found


class NestedPostgresStore(PostgresStore):
    """A ledger in the database that Django's own connection has open."""

    def __init__(self, connection: Any) -> None:
        super().__init__(address_of(connection).partition("?")[0], accept_loss=True)
        self._django = connection

    @property
    def capabilities(self) -> Capabilities:
        """One writer, which is Django's connection."""
        return Capabilities(
            name="postgres",
            durability=Durability.PROCESS_CRASH,
            writers_max=1,
            audit_trail=AuditTrail.LOG,
            business_writes=True,
            facets=ALL_FACETS,
            is_local=False,
        )

    def connect(self) -> PostgresSession:
        """A session on Django's connection."""
        return _NestedPostgresSession(self._django.connection, None)

    @contextmanager
    def look(self, *, again: bool = False) -> Iterator[PostgresSession]:
        """Reads on Django's connection."""
        session = self.connect()
        with session.unit():
            yield session

    def exists(self) -> bool:
        """There is one: Django has it open."""
        return True
