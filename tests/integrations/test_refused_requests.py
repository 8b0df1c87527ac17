"""What refused requests leave in the ledger: few rows, and none that stays for ever (I14, I18)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncegate import Gate
from oncegate.asgi import IdempotencyKey
from oncegate.model.states import State
from oncegate.testing import ManualClock
from oncegate.upkeep.pruner import Pruner
from tests.integrations.callers import call, run

REQUESTS = 1_000
RETENTION_SECONDS = 30 * 86_400
TABLES = ("entry", "payload", "outcome", "step", "trace", "content", "repeat", "name")
Counts = dict[str, int]


class Shop:
    """An application that answers with one status."""

    def __init__(self, status: int) -> None:
        self.status, self.calls = status, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Place:
    """One ledger with a gate, and a way to count its rows."""

    def __init__(self, url: str, connect: Callable[[], Any]) -> None:
        self.clock = ManualClock()
        self.gate = Gate(url, clock=self.clock)
        self.pruner = Pruner(self.gate)
        self._connect = connect

    def app(self, shop: Shop) -> IdempotencyKey:
        return IdempotencyKey(shop, gate=self.gate, caller=lambda request: "anna")

    def rows(self) -> Counts:
        with contextlib.closing(self._connect()) as connection:
            return {
                table: connection.execute(f"SELECT count(*) FROM oncegate_{table}").fetchone()[0]
                for table in TABLES
            }

    def states(self) -> Counts:
        with contextlib.closing(self._connect()) as connection:
            found = connection.execute("SELECT state, count(*) FROM oncegate_entry GROUP BY state")
            return {State(number).name: count for number, count in found.fetchall()}


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        path = tmp_path / "ledger.db"
        made = Place(f"sqlite:///{path}", lambda: sqlite3.connect(path))
    else:
        url = request.getfixturevalue("ledger_url")
        made = Place(url, lambda: psycopg.connect(url))
    with made.gate:
        yield made


def ask(app: IdempotencyKey, count: int) -> set[int]:
    """Sends requests with different keys."""

    async def all_of_them() -> set[int]:
        return {(await call(app, key=f'"key-{number}"')).status for number in range(count)}

    found: set[int] = run(all_of_them())
    return found


def test_a_thousand_refused_requests_are_forgotten_after_retention(place: Place) -> None:
    """Nothing was done for them: an entry, its payload and its step each, until retention is over."""
    shop = Shop(201)
    app = place.app(shop)
    run(call(app, key='"first"'))
    place.pruner.run_once()
    before = place.rows()
    shop.status = 403

    assert ask(app, REQUESTS) == {403}
    full = place.rows()
    place.clock.advance(RETENTION_SECONDS - 60)
    assert place.pruner.run_once().entries == 0
    place.clock.advance(7_200)
    report = place.pruner.run_once()

    grown = {table: full[table] - before[table] for table in TABLES}
    assert grown == {
        **dict.fromkeys(TABLES, 0),
        **dict.fromkeys(("entry", "payload", "step"), REQUESTS),
        "name": grown["name"],
    }
    assert grown["name"] <= 2  # of the step and its declaration: none for each request
    assert report.entries == REQUESTS + 1
    assert place.rows() == {**dict.fromkeys(TABLES, 0), "name": full["name"] + 1}  # the pruner's own
    assert ask(app, 1) == {403}


def test_requests_that_failed_with_500_stay_however_old_they_are(place: Place) -> None:
    """The application may have acted: a person decides, and no repeat runs meanwhile."""
    shop = Shop(500)
    app = place.app(shop)
    ask(app, 5)
    place.pruner.run_once()
    place.clock.advance(10 * RETENTION_SECONDS)

    assert place.pruner.run_once().entries == 0
    assert place.states() == {"UNKNOWN": 5}
    ask(app, 5)
    assert shop.calls == 5
