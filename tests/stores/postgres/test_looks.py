"""Sessions that are kept between looks: few, alive, of this process, and gone when the gate closes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import psycopg
import pytest

from oncegate import Gate
from oncegate.errors import SchemaMismatch, StoreUnavailable
from oncegate.stores.postgres import PostgresStore, read_sessions
from oncegate.stores.postgres.session import PostgresSession
from oncegate.testing import run_forked, wait_until
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.waiting import DEADLINE_SECONDS

OTHERS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'oncegate' AND pid <> pg_backend_pid()"
)


@pytest.fixture
def store(ledger_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(ledger_url)
    yield store
    store.close()


def backend(store: PostgresStore) -> int:
    """The server's process behind a look."""
    with store.look(again=True) as session:
        return session._connection.info.backend_pid


def sessions(url: str) -> int:
    """How many sessions the server has from us."""
    with psycopg.connect(url, autocommit=True) as connection:
        ((found,),) = connection.execute(OTHERS).fetchall()
    return int(found)


def test_a_look_that_others_follow_is_served_by_the_session_before(store: PostgresStore) -> None:
    assert backend(store) == backend(store)


def test_a_look_alone_keeps_nothing(store: PostgresStore, ledger_url: str) -> None:
    with store.look() as session:
        assert session.counts() == {}
    wait_until(lambda: sessions(ledger_url) == 0)


def test_few_are_kept_however_many_look_at_once(store: PostgresStore, ledger_url: str) -> None:
    at_once = read_sessions.KEPT_MAX + 4
    with ExitStack() as stack:
        found = [stack.enter_context(store.look(again=True)) for _ in range(at_once)]
        assert len({session._connection.info.backend_pid for session in found}) == at_once
    wait_until(lambda: sessions(ledger_url) == read_sessions.KEPT_MAX)


def test_threads_never_share_a_session(store: PostgresStore) -> None:
    """Each of many looks at once reads its own moment on its own connection."""
    threads, rounds = 8, 15
    barrier = Barrier(threads, timeout=DEADLINE_SECONDS)

    def look(_: int) -> list[int]:
        found = []
        for _ in range(rounds):
            barrier.wait()
            with store.look(again=True) as session:
                barrier.wait()
                found.append(session._connection.info.backend_pid)
        return found

    with ThreadPoolExecutor(threads) as pool:
        by_thread = list(pool.map(look, range(threads)))
    for at_once in zip(*by_thread, strict=True):
        assert len(set(at_once)) == threads


def test_an_error_in_a_look_spoils_none_of_the_next(store: PostgresStore) -> None:
    first = backend(store)
    with pytest.raises(RuntimeError), store.look(again=True):
        raise RuntimeError("a page failed")
    with pytest.raises(StoreUnavailable), store.look(again=True) as session:
        session._connection.execute("SELECT 1 / 0 FROM nothing_of_that_name")
    assert backend(store) == first


def test_a_session_that_the_server_ended_is_replaced(store: PostgresStore, ledger_url: str) -> None:
    first = backend(store)
    with psycopg.connect(ledger_url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", (first,))
    assert backend(store) != first


def test_a_session_that_dies_as_it_is_tried_is_replaced(
    store: PostgresStore, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket says nothing of an end yet; the first statement finds out."""
    first = backend(store)
    with psycopg.connect(ledger_url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", (first,))
    monkeypatch.setattr(PostgresSession, "is_connected", lambda session: True)
    assert backend(store) != first


def test_an_old_session_is_replaced(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first = backend(store)
    monkeypatch.setattr(read_sessions, "KEPT_MS_MAX", -1)
    assert backend(store) != first


def test_a_ledger_that_was_migrated_meanwhile_is_refused(store: PostgresStore, ledger_url: str) -> None:
    """A kept session must not read a ledger that this version does not know."""
    backend(store)
    change = "UPDATE oncegate_meta SET value = (value::int + %s)::text WHERE name = 'schema_version'"
    with psycopg.connect(ledger_url, autocommit=True) as connection:
        connection.execute(change, (1,))
        try:
            with pytest.raises(SchemaMismatch), store.look(again=True):
                pass
        finally:
            connection.execute(change, (-1,))
    assert backend(store) > 0


def test_a_forked_child_neither_uses_nor_ends_its_parents_session(store: PostgresStore) -> None:
    first = backend(store)

    def child() -> tuple[int, int]:
        try:
            return backend(store), backend(store)
        finally:
            store.close()

    code, told = run_forked(child)

    assert code == 0
    assert told[0] == told[1] != first
    assert backend(store) == first, "the parent's session goes on"


def test_closing_the_gate_closes_what_is_kept(ledger_url: str) -> None:
    gate = Gate(ledger_url)
    with gate.engine.store.look(again=True) as session:
        session.counts()
    gate.close()
    wait_until(lambda: sessions(ledger_url) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_looks_go_on_after_the_server_was_restarted(how: signal.Signals) -> None:
    with PostgresServer(in_memory=True) as server:
        store = PostgresStore(server.new_database())
        store.connect().close()
        assert backend(store) > 0
        server.stop(how)
        with pytest.raises(StoreUnavailable), store.look(again=True):
            pass
        server.start()
        try:
            with store.look(again=True) as session:
                assert session.counts() == {}
        finally:
            store.close()
