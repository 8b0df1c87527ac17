"""A shop on either store whose events are committed together: tables, statements, rows read back."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg

from oncegate import AsyncOnce, Gate, Once
from oncegate.gate.admission import Verdict

Statements = list[tuple[str, tuple[Any, ...]]]
Event = dict[str, Any]

_TABLES = (
    "CREATE TABLE orders (id {serial}, customer text NOT NULL)",
    "CREATE TABLE lines (orders bigint NOT NULL, customer text NOT NULL)",
    "CREATE TABLE counter (name text PRIMARY KEY, n bigint NOT NULL CHECK (n < 1000))",
    "CREATE TABLE invoices (number bigint NOT NULL, customer text NOT NULL)",
    "CREATE TABLE tenants (tenant text, customer text NOT NULL)",
    "CREATE TABLE bookings (slot text PRIMARY KEY)",
    "INSERT INTO counter VALUES ('invoices', 0), ('stock', 0)",
)
_SERIAL = {"sqlite": "INTEGER PRIMARY KEY", "postgres": "bigserial PRIMARY KEY"}
_LAST_ID = {"sqlite": "last_insert_rowid()", "postgres": "lastval()"}

COUNT = "UPDATE counter SET n = n + 1 WHERE name = ?"
NUMBER = "INSERT INTO invoices (number, customer) SELECT n, ? FROM counter WHERE name = 'invoices'"
BOOK = "INSERT INTO bookings (slot) VALUES (?)"
UNDER = "SELECT set_config('app.tenant', ?, true)"
WHO = "INSERT INTO tenants (tenant, customer) VALUES (nullif(current_setting('app.tenant', true), ''), ?)"


class Shop:
    """A ledger with business tables beside it, and a gate whose events bring their statements with them."""

    def __init__(self, store: str, url: str) -> None:
        self.store, self.url = store, url
        self.round = 0
        self.gate = Gate(url)
        self.gate.engine.store.connect().close()
        for table in _TABLES:
            self.rows(table.format(serial=_SERIAL[store]))

        @self.gate.handler("shop", key="{id}")
        def take(event: Event, once: Once) -> str:
            once.commit(writes=self.statements[event["id"]])
            return str(event["id"])

        @self.gate.handler("shop in tasks", key="{id}")
        async def take_in_task(event: Event, once: AsyncOnce) -> str:
            once.commit(writes=self.statements[event["id"]])
            return str(event["id"])

        self.statements: dict[str, Statements] = {}

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Asks the database itself, past the gate."""
        if self.store == "sqlite":
            path = self.url.removeprefix("sqlite:///")
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                return connection.execute(sql).fetchall()
        with psycopg.connect(self.url, autocommit=True) as other:
            cursor = other.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def order(self, customer: str) -> Statements:
        """An order, and its line under the number that the database gave it."""
        line = f"INSERT INTO lines (orders, customer) VALUES ({_LAST_ID[self.store]}, ?)"
        return [("INSERT INTO orders (customer) VALUES (?)", (customer,)), (line, (customer,))]

    def admit(self, name: str, statements: Statements) -> object:
        """Brings one event from this thread: its verdict, or what was raised."""
        self.statements[name] = statements
        try:
            return self.gate.admit_sync("shop", {"id": name}).verdict
        except Exception as error:  # noqa: BLE001  judged by the test
            return error

    def empty(self, tables: Sequence[str]) -> None:
        """Begins a new round: no rows, counters at zero."""
        self.round += 1
        for table in tables:
            self.rows(f"DELETE FROM {table}")
        self.rows("UPDATE counter SET n = 0")

    def admit_all(
        self, events: Sequence[Statements], how: str = "tasks", names: Sequence[str] = ()
    ) -> list[object]:
        """Brings many events at once, from tasks of one loop or from threads."""
        names = names or [f"E-{number}" for number in range(len(events))]
        self.statements |= zip(names, events, strict=True)
        if how == "threads":
            with ThreadPoolExecutor(32) as threads:
                return list(threads.map(self.admit, names, events))

        async def main() -> list[object]:
            arrivals = (self.gate.admit("shop in tasks", {"id": name}) for name in names)
            found = await asyncio.gather(*arrivals, return_exceptions=True)
            return [one if isinstance(one, BaseException) else one.verdict for one in found]

        return asyncio.run(main())

    def close(self) -> None:
        """Closes the gate."""
        self.gate.close()


def all_run(answers: Sequence[object]) -> bool:
    """Whether every event was run and settled."""
    return all(answer is Verdict.RUN for answer in answers)


def shop_maker(store: str, folder: Path, ledger_url: Callable[[], str]) -> Shop:
    """A fresh shop on one of the stores."""
    return Shop(store, f"sqlite:///{folder / 'shop.db'}" if store == "sqlite" else ledger_url())
