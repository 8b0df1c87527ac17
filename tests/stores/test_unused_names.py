"""Interned names that nothing uses are removed, never while a process may hold their number (I8, I18)."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncegate.maintenance.pruner import drop_unused_names
from oncegate.model.states import State
from oncegate.store import Forgetting, Reservation, Settlement
from oncegate.stores.postgres import session as postgres_session
from oncegate.stores.shared.unused_names import NUMBERS_KEPT_MS, UNUSED_MS, USES
from oncegate.testing import ManualClock
from oncegate.wiring import open_store

Connect = Callable[[], Any]
PLACES = {"surface", "tenant", "actor", "destination", "downstream", "declared", "dismissed_by", "type"}


class Place:
    """One ledger, with a session that lives as long as a process does."""

    def __init__(self, url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self.clock, self._connect = url, ManualClock(), connect
        monkeypatch.setattr(postgres_session, "_CLOCK", self.clock)
        self.store = open_store(url, clock=self.clock)
        self.session = self.store.connect()
        self._tokens = count(1)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(self._connect()) as connection:
            rows: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
            connection.commit()
            return rows

    def names(self) -> dict[str, int]:
        return {text: number for number, text in self.query("SELECT id, text FROM oncegate_name")}

    def make(self, *texts: str) -> None:
        """Interns names that no row uses."""
        for text in texts:
            self.query(f"INSERT INTO oncegate_name (text) VALUES ('{text}') RETURNING id")

    def forget(self, tenant: str) -> None:
        """Takes a tenant's entries away, as retention does in the end."""
        of_tenant = f"SELECT id FROM oncegate_entry WHERE tenant = {self.names()[tenant]}"
        entries = tuple(number for (number,) in self.query(of_tenant))
        self.clock.advance(1)
        now = self.clock.wall_ms()
        with contextlib.closing(self.store.connect()) as session, session.unit():
            assert session.forget(Forgetting("orders", now, entries, now, "pruner")) == len(entries)

    def prune(self, *, after_ms: int = 0) -> int:
        self.clock.advance(after_ms / 1000)
        with contextlib.closing(self.store.connect()) as session:
            return drop_unused_names(self.store, session, kept=0)

    def prune_all(self) -> int:
        """As often as a name needs: found, waited for, removed."""
        return self.prune() + self.prune(after_ms=UNUSED_MS) + self.prune()

    def admit(self, tenant: str) -> None:
        """An event of a tenant arrives and is settled, over the session that stays open."""
        now, token = self.clock.wall_ms(), next(self._tokens)
        text = f"{tenant} {token}"
        wanted = Reservation(
            sha256(text.encode()).digest(), tenant, "orders", text, b"content", b"{}", now, 20_000, 8, token
        )
        with self.session.unit():
            (claim,) = self.session.reserve([wanted])
        with self.session.unit():
            self.session.settle([Settlement(*claim.claim, State.COMMITTED, now, "gate", outcome=b"{}")])


@pytest.fixture(params=["sqlite", "postgres"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    if request.param == "sqlite":
        path = tmp_path / "ledger.db"
        made = Place(f"sqlite:///{path}", lambda: sqlite3.connect(path), monkeypatch)
    else:
        url = request.getfixturevalue("ledger_url")
        made = Place(url, lambda: psycopg.connect(url), monkeypatch)
    yield made
    made.session.close()


def test_names_that_nothing_uses_are_removed_and_others_stay(place: Place) -> None:
    """Strangers' names go after an hour; those of rows stay with their numbers."""
    place.admit("anna")
    place.make("stranger 1", "stranger 2", "stranger 3")
    place.admit("last")
    before = place.names()

    assert place.prune_all() >= 3

    left = place.names()
    assert not [text for text in left if text.startswith("stranger")]
    assert {"anna", "last", "orders", "gate"} <= left.keys()
    assert left.items() <= before.items()


def test_number_of_a_removed_name_is_never_given_out_again(place: Place) -> None:
    """The newest one of all is the case that a table without a counter gets wrong."""
    place.admit("anna")
    place.make("stranger 1", "stranger 2")
    before = place.names()

    place.prune_all()
    place.make("newcomer")

    assert place.names()["newcomer"] > max(before.values())


def test_name_that_was_looked_up_meanwhile_stays(place: Place) -> None:
    """A name found unused is used by the next event: its mark is gone, and its number is right."""
    place.make("anna")
    place.admit("last")
    number = place.names()["anna"]
    place.prune()
    place.clock.advance(NUMBERS_KEPT_MS / 1000 + 1)
    place.admit("anna")

    place.prune(after_ms=UNUSED_MS)
    place.prune()

    assert place.names()["anna"] == number
    assert place.query("SELECT count(*) FROM oncegate_entries WHERE tenant = 'anna'") == [(1,)]


def test_name_looked_up_before_its_rows_are_written_is_not_removed(place: Place) -> None:
    """The look saw it unused; a lookup between the look and the removal keeps it."""
    place.make("anna")
    place.admit("last")
    place.prune()
    if not place.url.startswith("sqlite"):
        place.prune(after_ms=UNUSED_MS)
    place.clock.advance(UNUSED_MS / 1000)
    with place.store.look() as reader:
        found = reader.unused_names(0, 100)
    assert place.names()["anna"] in found.due
    place.admit("anna")

    with contextlib.closing(place.store.connect()) as session, session.unit():
        session.drop_names(found)

    assert place.query("SELECT count(*) FROM oncegate_entries WHERE tenant = 'anna'") == [(1,)]


def test_process_that_kept_a_number_asks_again_before_the_name_can_be_gone(place: Place) -> None:
    """A long-lived process knew the name; all its rows go, then the name; its next event has a good one."""
    place.admit("anna")
    place.admit("last")
    place.forget("anna")
    old = place.names()["anna"]

    place.prune_all()
    assert "anna" not in place.names()
    place.admit("anna")

    assert place.names()["anna"] > old
    assert place.query("SELECT count(*) FROM oncegate_entries WHERE tenant = 'anna'") == [(1,)]


def test_number_in_memory_is_used_while_the_name_only_waits(place: Place) -> None:
    """Kept numbers outlive the mark by minutes, the name by an hour: an event in between is on record."""
    place.admit("anna")
    place.admit("last")
    place.forget("anna")
    place.prune()
    place.clock.advance(1)
    place.admit("anna")

    place.prune(after_ms=UNUSED_MS)
    place.prune()

    assert place.query("SELECT count(*) FROM oncegate_entries WHERE tenant = 'anna'") == [(1,)]


def test_open_transaction_keeps_the_names_that_it_may_have_used(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL shows nobody the rows of an open transaction: names wait until it has ended."""
    place = Place(ledger_url, lambda: psycopg.connect(ledger_url), monkeypatch)
    with contextlib.closing(place.session), psycopg.connect(ledger_url) as other:
        place.make("anna")
        number = place.names()["anna"]
        other.execute("INSERT INTO oncegate_feed_tenant (tenant, last) VALUES (%s, 0)", (number,))
        place.prune_all()
        other.commit()
        place.prune()

        assert place.names()["anna"] == number


def test_small_ledger_is_not_searched(place: Place) -> None:
    """Reading every table for a few thousand names is not worth it."""
    place.make("stranger 1", "stranger 2")
    with place.store.look() as reader:
        assert not reader.unused_names(10_000, 100)


def test_every_column_that_holds_a_name_is_known_to_the_pruner(place: Place) -> None:
    """A new column that is not in the list would have its names removed."""
    if place.url.startswith("sqlite"):
        tables = place.query("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        found = {
            (table.removeprefix("oncegate_"), column)
            for table, sql in tables
            for column in re.findall(r"(\w+)\s+INTEGER", sql)
            if column in PLACES
        }
        more = {("entry", "declared")}
    else:
        columns = place.query(
            "SELECT table_name, column_name FROM information_schema.columns WHERE data_type = 'integer'"
            " AND table_name LIKE 'oncegate_%' AND table_name IN"
            " (SELECT relname FROM pg_class WHERE relkind IN ('r', 'p'))"
        )
        found = {(t.removeprefix("oncegate_"), column) for t, column in columns if column in PLACES}
        more = {("open", "declared"), ("head", "destination")}

    assert found | {("destination", "id")} == {*USES, *more}
