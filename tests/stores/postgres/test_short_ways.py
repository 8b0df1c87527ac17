"""Short ways of handlers' own transactions leave nothing out that is needed."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from oncegate.store import StepRecord, StepRecords, StepState
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.postgres.session import PostgresSession
from tests.support.postgres_site import reservation, settlement

SOCKETS_MAX = 200
HANDLERS = 16


@pytest.fixture
def session(ledger_url: str) -> Iterator[PostgresSession]:
    with contextlib.closing(PostgresStore(ledger_url).connect()) as opened:
        yield opened


def test_last_end_of_a_transaction_clears_steps_that_were_saved(session: PostgresSession) -> None:
    """Given a claim with a step on record; when it ends with its transaction; then the step is gone."""
    with session.unit():
        (reserved,) = session.reserve([reservation(1)])
        step = StepRecord("charge", StepState.DONE, "bank", b"1")
        session.progress([StepRecords(*reserved.claim, (step,), 1)])

    with session.unit():
        end = settlement(reserved, outcome=b"{}", clear_steps=True)
        assert session.settle([end], last=True) == [True]

    with session.unit():
        assert session._query("SELECT count(*) FROM oncegate_step", ()) == [(0,)]


def test_closed_connection_is_not_taken_for_a_quiet_one(session: PostgresSession) -> None:
    """Given a closed connection whose number was given to another socket, which is quiet; then it is closed
    all the same, and replaced before anything is sent (I5)."""
    assert session.is_connected()
    number = session._connection.pgconn.socket
    session._connection.close()

    with contextlib.ExitStack() as opened:
        for _ in range(SOCKETS_MAX):
            if opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).fileno() == number:
                break
        assert not session.is_connected()
    with session.unit():
        assert session.read([b"k" * 24]) == [None]


def test_of_many_handlers_that_begin_at_once_one_asks_for_names(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given handlers that all give their first transaction; then one connection is opened, not one each."""
    store, opened = PostgresStore(ledger_url), list[PostgresSession]()
    store.migrate()
    connect = store.connect

    def connect_and_count() -> PostgresSession:
        opened.append(connect())
        return opened[-1]

    monkeypatch.setattr(store, "connect", connect_and_count)

    with ThreadPoolExecutor(HANDLERS) as handlers:
        list(handlers.map(store.learn, [("gate",)] * HANDLERS))

    assert store.knows(("gate",))
    assert len(opened) == 1
