"""The crash site with its ledger and bookings on a PostgreSQL server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

from lab.crash_matrix.site import Event, Sales, Site
from oncegate.store import Store
from oncegate.stores.postgres import PostgresStore


@dataclass(slots=True)
class ServerSite(Site):
    """The crash site with its ledger and bookings on a server."""

    url: str = ""

    def __post_init__(self) -> None:
        self.sales = {mode: Sales(terminal.record) for mode, terminal in self.terminals.items()}
        self.store().connect().close()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE booking (ref text, slot text)")

    def store(self) -> Store:
        return PostgresStore(self.url, clock=self.clock)

    @contextlib.contextmanager
    def own_transaction(self, event: Event, slot: str) -> Iterator[object]:
        with psycopg.connect(self.url) as own:
            own.execute("INSERT INTO booking VALUES (%s, %s)", (event["id"], slot))
            yield own

    def bookings(self, event: Event) -> list[str]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            rows = connection.execute("SELECT slot FROM booking WHERE ref = %s", (event["id"],))
            return [slot for (slot,) in rows]
