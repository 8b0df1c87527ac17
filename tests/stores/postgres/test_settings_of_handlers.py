"""What a handler sets on the session is its own event's: the next event finds the connection as it was.

A setting that stays would be another customer's tenant, a commit that does not wait for the disk, or a lock
that is never released (I12, I19).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest

from oncegate import Gate, Once, UsageError
from oncegate.errors import OncegateError
from oncegate.stores.postgres import PostgresStore, tidying
from oncegate.stores.postgres.session import PostgresSession
from oncegate.stores.postgres.wire import WireCommand
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.waiting import wait_until
from tests.stores.postgres.test_bad_input import run_sql

SETTINGS = {
    "synchronous_commit": "off",
    "app.tenant": "tenant-a",
    "statement_timeout": "77s",
    "lock_timeout": "3s",
    "search_path": "elsewhere",
    "default_transaction_isolation": "serializable",
    "enable_seqscan": "on",
    "jit": "on",
    "session_replication_role": "replica",
}
SETS: list[Callable[[str, str], str]] = [
    lambda name, value: f"SET {name} = '{value}'",
    lambda name, value: f"SELECT set_config('{name}', '{value}', false)",
]
LEFT_BEHIND = {
    "advisory lock": (
        "SELECT pg_advisory_lock(4711)",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711",
    ),
    "temporary table": (
        "CREATE TEMP TABLE mine (id int)",
        "SELECT count(*) FROM pg_class WHERE relname = 'mine'",
    ),
}

SEEN_AT_COMMIT = """
CREATE OR REPLACE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END$$
"""
AT_COMMIT = """
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON written
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look()
"""


@pytest.fixture
def session(ledger_url: str) -> Iterator[PostgresSession]:
    """A session as a gate has it."""
    opened = PostgresStore(ledger_url).connect()
    yield opened
    opened.close()


def setting(session: PostgresSession, name: str) -> Any:
    with session.unit():
        ((found,),) = session._query("SELECT current_setting(%s, true)", (name,))
    return found or None


def count_of(url: str, sql: str) -> int:
    with psycopg.connect(url) as connection:
        (found,) = connection.execute(sql.encode()).fetchone() or (0,)
        return int(found)


def shown(url: str) -> Any:
    """What a new connection's commits wait for."""
    with psycopg.connect(url) as connection:
        (found,) = connection.execute("SHOW synchronous_commit").fetchone() or (None,)
        return found


def in_a_block(session: PostgresSession, sql: str) -> None:
    """As a commit block or a same-database handler runs it."""
    with session.unit():
        session.execute(sql, ())


def as_a_write(session: PostgresSession, sql: str) -> None:
    """As a write that is given as data."""
    assert session._finish([], [(sql, ())])


def undone(session: PostgresSession, sql: str) -> None:
    """In a transaction that fails afterwards."""
    _fails(session, sql, "SELECT 1 / 0")


def refused(session: PostgresSession, sql: str) -> None:
    """As a write whose batch is refused."""
    with pytest.raises(OncegateError):
        session._finish([], [(sql, ()), ("SELECT no_such_function()", ())])


def refused_at_the_end(session: PostgresSession, sql: str) -> None:
    """In a transaction that COMMIT itself refuses."""
    due = "CREATE TABLE due (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)"
    _fails(session, due, "INSERT INTO due VALUES (1), (1)", sql)


def _fails(session: PostgresSession, *statements: str) -> None:
    with contextlib.suppress(OncegateError):
        with session.unit():
            for sql in statements:
                session.execute(sql, ())
        pytest.fail("the transaction was committed")


WAYS = [in_a_block, as_a_write, undone, refused, refused_at_the_end]


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("way", WAYS)
def test_setting_of_a_handler_ends_with_its_transaction(
    session: PostgresSession, way: Callable[[PostgresSession, str], None], sets: Callable[[str, str], str]
) -> None:
    before = {name: setting(session, name) for name in SETTINGS}

    for name, value in SETTINGS.items():
        way(session, sets(name, value))

    assert {name: setting(session, name) for name in SETTINGS} == before


@pytest.mark.parametrize("left", LEFT_BEHIND)
@pytest.mark.parametrize("way", WAYS)
def test_lock_or_table_of_a_handler_ends_with_its_transaction(
    session: PostgresSession, ledger_url: str, way: Callable[[PostgresSession, str], None], left: str
) -> None:
    makes, counts = LEFT_BEHIND[left]
    way(session, makes)
    assert count_of(ledger_url, counts) == 0


@pytest.mark.parametrize("sql", ["SET ROLE tenant_role", "SET SESSION AUTHORIZATION tenant_role"])
@pytest.mark.parametrize("way", [in_a_block, as_a_write])
def test_role_of_a_handler_ends_with_its_transaction(
    session: PostgresSession, ledger_url: str, way: Callable[[PostgresSession, str], None], sql: str
) -> None:
    run_sql(ledger_url, "DROP ROLE IF EXISTS tenant_role", "CREATE ROLE tenant_role")
    way(session, sql)
    with session.unit():
        assert session._query("SELECT 'tenant_role' IN (current_user, session_user)", ()) == [(False,)]


@pytest.mark.parametrize("way", [in_a_block, as_a_write])
@pytest.mark.parametrize("is_local", ["true", "false"])
def test_commit_waits_for_the_disk_whatever_a_handler_has_set(
    session: PostgresSession, way: Callable[[PostgresSession, str], None], is_local: str
) -> None:
    """Seen by a trigger that COMMIT fires: the setting in force is the ledger's again."""
    for made in (
        "CREATE TABLE seen (value text)",
        "CREATE TABLE written (id int)",
        SEEN_AT_COMMIT,
        AT_COMMIT,
    ):
        in_a_block(session, made)

    way(
        session,
        "WITH put AS (INSERT INTO written VALUES (1))"
        f" SELECT set_config('synchronous_commit', 'off', {is_local})",
    )

    with session.unit():
        assert session._query("SELECT value FROM seen", ()) == [("on",)]


@pytest.mark.parametrize(
    "sql",
    ["LISTEN orders", "/* a */ deallocate ALL", "PREPARE p AS SELECT 1", "DISCARD PLANS",
     "DECLARE c CURSOR WITH HOLD FOR SELECT 1"],
)  # fmt: skip
def test_statement_that_only_outlasts_its_transaction_is_refused(
    session: PostgresSession, sql: str
) -> None:
    with pytest.raises(UsageError, match="connection of your own"), session.unit():
        session.execute(sql, ())
    in_a_block(session, "SELECT 1")


@pytest.mark.slow
def test_reload_of_the_server_does_not_lower_what_commits_wait_for() -> None:
    """Given a session that is open; then `synchronous_commit=off` in a reloaded file is not its."""
    with PostgresServer(in_memory=True) as server:
        url = server.new_database()
        with contextlib.closing(PostgresStore(url).connect()) as session:
            run_sql(url, "ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()")
            wait_until(lambda: shown(url) == "off", what="the reload")
            in_a_block(session, "SELECT 1")
            assert setting(session, "synchronous_commit") == "on"


def test_stronger_setting_of_the_server_stays(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    run_sql(
        url,
        f"ALTER DATABASE {url.partition('@/')[2].partition('?')[0]} SET synchronous_commit = remote_apply",
    )
    with contextlib.closing(PostgresStore(url).connect()) as session:
        in_a_block(session, "SET synchronous_commit = local")
        assert setting(session, "synchronous_commit") == "remote_apply"


def test_next_event_of_a_gate_does_not_see_the_tenant_of_the_one_before(ledger_url: str) -> None:
    seen: list[Sequence[Any]] = []
    with Gate(ledger_url) as gate:

        @gate.handler("bookings", key="{id}", same_database=True)
        def book(event: dict[str, str], once: Once) -> None:
            seen.extend(once.tx.execute("SELECT current_setting('app.tenant', true)"))
            once.tx.execute("SELECT set_config('app.tenant', ?, false)", (event["id"],))

        for number in range(5):
            gate.admit_sync("bookings", {"id": f"E-{number}"})

    assert {row[0] or None for row in seen} == {None}


def acknowledged_and_kept() -> tuple[list[str], list[str]]:
    """Events that were acknowledged after one whose handler set `synchronous_commit=off`, and what the
    ledger has of them after the server has crashed. The server's log is flushed by commits alone."""
    acknowledged: list[str] = []
    with PostgresServer({"wal_writer_delay": "10s"}, in_memory=True) as server:
        url = server.new_database()
        with Gate(url) as gate:

            @gate.handler("bookings", key="{id}", same_database=True)
            def book(event: dict[str, str], once: Once) -> None:
                if event["id"] == "first":
                    once.tx.execute("SET synchronous_commit = off")

            for name in ("first", "second", "third"):
                gate.admit_sync("bookings", {"id": name})
                acknowledged.append(name)
            server.crash_and_restart()
        with psycopg.connect(url) as connection:
            kept = connection.execute("SELECT label FROM oncegate_entry WHERE state = 2 ORDER BY id")
            return acknowledged, [label for (label,) in kept.fetchall()]


@pytest.mark.slow
def test_events_after_a_handler_that_does_not_wait_for_the_disk_survive_a_crash() -> None:
    acknowledged, kept = acknowledged_and_kept()
    assert kept == acknowledged


@pytest.mark.slow
def test_session_that_keeps_a_handlers_settings_loses_acknowledged_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken session of the same run: what the test above protects from does happen."""

    class Keeping(tidying.Tidying):
        def __init__(self, values: Sequence[str]) -> None:
            super().__init__(values)
            self.before, self.after = WireCommand("SELECT 1"), (WireCommand("SELECT 1"),)

    monkeypatch.setattr(tidying, "Tidying", Keeping)
    acknowledged, kept = acknowledged_and_kept()
    assert len(kept) < len(acknowledged)


def test_tables_that_a_handler_drops_leave_the_sessions_statements_in_place(ledger_url: str) -> None:
    with Gate(ledger_url) as gate:

        @gate.handler("reports", key="{id}", same_database=True)
        def report(event: dict[str, str], once: Once) -> None:
            once.tx.execute("CREATE TABLE scratch (id int)")
            once.tx.execute("ALTER TABLE scratch ADD COLUMN amount int")
            once.tx.execute("DROP TABLE scratch")

        for name in ("first", "second", "third"):
            assert gate.admit_sync("reports", {"id": name}).verdict.value == "run"
