"""I23: whatever acts for a claim shows its random token, also in a transaction of the user's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from oncegate.model.states import State
from oncegate.store import Reserved, Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from tests.support.postgres_site import reservation, settlement

Connect = Callable[[], Any]


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Connect]]:
    """A ledger, and how a user opens a transaction on its database."""
    clock = ManualClock()
    if request.param == "sqlite":
        path = tmp_path / "ledger.db"
        store: Store = SqliteStore(path, clock=clock)
        yield store, lambda: _begun(sqlite3.connect(path, isolation_level=None))
    else:
        url = request.getfixturevalue("ledger_url")
        store = PostgresStore(url, clock=clock)
        yield store, lambda: psycopg.connect(url)
    store.close()


def _begun(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.execute("BEGIN IMMEDIATE")
    return connection


def _begin(connection: Any) -> None:
    if isinstance(connection, psycopg.Connection):
        connection.execute("SELECT 1")


@pytest.mark.parametrize("state", [State.COMMITTED, State.FAILED, State.RETRYABLE, State.HELD])
@pytest.mark.parametrize("outcome", [b"1", None])
def test_joined_settlement_with_another_token_changes_nothing_and_says_so(
    ledger: tuple[Store, Connect], state: State, outcome: bytes | None
) -> None:
    store, connect = ledger
    claim = _reserved(store)
    wanted = replace(settlement(claim, outcome=outcome), state=state)
    store.learn([wanted.actor])

    answers = []
    for token in (claim.token + 1, claim.token):
        with closing(connect()) as connection:
            _begin(connection)
            answers.append(store.join(connection).settle_one(replace(wanted, token=token)))
            connection.commit()

    assert answers == [False, True]


def test_transaction_of_the_gate_does_not_end_a_claim_with_another_token(
    ledger: tuple[Store, Connect],
) -> None:
    """As the last call of a unit, in which the store may send COMMIT along."""
    store, _ = ledger
    session = store.connect()

    def act() -> None:
        with session.unit():
            (claim,) = session.reserve([reservation(1, ends_here=True)])
            strange = settlement(replace(claim, token=claim.token ^ 1), outcome=b"1")
            assert session.settle([strange], last=True) == [False]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        act()
    with session.unit():
        (entry,) = session.read([reservation(1).key])
    session.close()
    assert entry is None


def _reserved(store: Store) -> Reserved:
    with closing(store.connect()) as session, session.unit():
        (claim,) = session.reserve([reservation(1)])
    return claim
