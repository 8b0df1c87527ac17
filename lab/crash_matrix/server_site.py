"""The crash site with its ledger and bookings on a PostgreSQL server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from lab.crash_matrix.site import Event, Sales, Site
from oncegate.store import Session, Store
from oncegate.stores.postgres import PostgresStore


@dataclass(slots=True)
class ServerSite(Site):
    """The crash site with its ledger and bookings on a server."""

    url: str = ""
    _reader: PostgresStore = field(init=False)
    _asking: psycopg.Connection[tuple[Any, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.sales = {mode: Sales(terminal.record) for mode, terminal in self.terminals.items()}
        self.store().connect().close()
        # Kept for all evidence: opening a connection takes longer than what is asked. Workers are forked
        # with it and never use it.
        self._reader = PostgresStore(self.url, clock=self.clock)
        self._asking = psycopg.connect(self.url, autocommit=True)
        self._asking.execute("CREATE TABLE booking (ref text, slot text)")

    def close(self) -> None:
        """Ends the sessions that evidence was read with."""
        self._reader.close()
        self._asking.close()

    def looking(self) -> contextlib.AbstractContextManager[Session]:
        return self._reader.look(again=True)

    def store(self) -> Store:
        return PostgresStore(self.url, clock=self.clock)

    @contextlib.contextmanager
    def own_transaction(self, event: Event, slot: str) -> Iterator[object]:
        with psycopg.connect(self.url) as own:
            own.execute("INSERT INTO booking VALUES (%s, %s)", (event["id"], slot))
            yield own

    def bookings(self, event: Event) -> list[str]:
        rows = self._asking.execute("SELECT slot FROM booking WHERE ref = %s", (event["id"],))
        return [slot for (slot,) in rows]
