"""Wrong addresses, rights, settings and schemas: one clear line with what to do, never a secret in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from oncegate import Gate
from oncegate.cli.main import main
from oncegate.errors import (
    BadUrl,
    DurabilityRefused,
    SchemaMismatch,
    StoreUnavailable,
)
from oncegate.store import Durability
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.postgres import store as postgres_store
from oncegate.testing.postgres import PostgresServer
from oncegate.wiring import open_store
from tests.support.postgres_site import finish, reservation

SECRET = "hunter2-canary"
SCRAM = "local all guest scram-sha-256\n"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own: its settings and rights are changed here."""
    with PostgresServer(in_memory=True) as started:
        yield started


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.new_database()


def run_sql(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def as_user(url: str, user: str, password: str | None = None) -> str:
    parts = urlsplit(url)
    secret = f":{password}" if password else ""
    return urlunsplit(parts._replace(netloc=f"{user}{secret}@"))


@contextlib.contextmanager
def setting(url: str, name: str, value: str) -> Iterator[None]:
    """Changes a setting of the database for as long as the block runs."""
    database = urlsplit(url).path[1:]
    run_sql(url, f"ALTER DATABASE {database} SET {name} = {value}")
    yield
    run_sql(url, "SET default_transaction_read_only = off", f"ALTER DATABASE {database} RESET {name}")


# --- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://user:{SECRET}%zz@host/db",
        f"postgresql://user:{SECRET}@host:port/db",
        f"postgresql://user:{SECRET}@host:99999/db",
        f"postgresql://user:{SECRET}@host:0/db",
        f"postgresql://user:12/{SECRET}@host/db",
        f"postgresql://user:{SECRET}@[::1/db",
        f"postgresql://user:{SECRET}@host/db?no_such_option=1",
        f"postgresql://user:{SECRET}@host/db?durability=maybe",
        f"mysql://user:{SECRET}@host/db",
        f"mysql://user:@{SECRET}@host/db",
        f"postgresql://user:12/{SECRET}?{SECRET}@host/db",
        f"postgresql://user:12/db?{SECRET}=1@host/db",
    ],
)
def test_bad_address_is_refused_without_showing_a_secret(address: str) -> None:
    """Whatever is wrong with an address, its password is in no message."""
    with pytest.raises(BadUrl) as refused:
        open_store(address)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://user:@{SECRET}@host/db",
        f"postgresql://user:begun@{SECRET}@host:5432/db",
        f"postgresql://user:begun@{SECRET},@host/db",
        f"postgresql://user:begun@{SECRET}/more@host/db",
        f"postgresql://user:begun@{SECRET}?sslmode=prefer@host/db",
    ],
)
def test_password_with_an_at_sign_is_refused_with_how_to_write_it(address: str) -> None:
    """The driver ends a password at its first @ and takes the rest for a host, which is shown."""
    with pytest.raises(BadUrl, match="%40") as refused:
        open_store(address)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"postgresql://user:{SECRET}@host:5433/db", "postgresql://user@host:5433/db"),
        (f"postgres://user@host/db?password={SECRET}", "postgresql://user@host/db"),
        (f"postgresql://user:{SECRET}@one:1,two:2/db", "postgresql://user@one:1,two:2/db"),
        (
            f"postgresql://user:{SECRET}@one,two/db?target_session_attrs=read-write",
            "postgresql://user@one,two/db",
        ),
        ("postgresql:///db", "postgresql:///db"),
        (f"postgresql://me%40corp:a%40{SECRET}@host/db?passfile=/a@b", "postgresql://me@corp@host/db"),
    ],
)
def test_address_is_shown_without_its_password(address: str, shown: str) -> None:
    """Also with several hosts, as for a primary and its standby."""
    store = open_store(address)
    assert store.address == shown
    assert SECRET not in repr(store)


@pytest.mark.slow
def test_unreachable_host_says_what_to_check(url: str) -> None:
    """Nobody listens there: refused soon, with the address but without the password."""
    store = PostgresStore(f"postgresql://user:{SECRET}@127.0.0.1:1/db")
    with pytest.raises(StoreUnavailable, match="check that the server runs") as refused:
        store.connect()
    assert SECRET not in str(refused.value)
    (finding,) = store.examine()
    assert not finding.ok
    assert SECRET not in finding.next_step


def test_missing_database_and_user_say_what_to_create(server: PostgresServer, url: str) -> None:
    """The server is there, what the address names is not."""
    for address in (server.url("no_such_database"), as_user(url, "nobody_here", SECRET)):
        with pytest.raises(StoreUnavailable, match="create the database or the user first") as refused:
            PostgresStore(address).connect()
        assert SECRET not in str(refused.value)


def test_wrong_password_says_so_and_is_not_shown(server: PostgresServer, url: str) -> None:
    """A server that asks for passwords refuses a wrong one, and takes the right one."""
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    run_sql(url, "DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN SUPERUSER PASSWORD 'right'")
    rules.write_text(SCRAM + before)
    run_sql(url, "SELECT pg_reload_conf()")
    try:
        for password in (SECRET, None):
            with pytest.raises(StoreUnavailable, match="check user and password") as refused:
                PostgresStore(as_user(url, "guest", password)).connect()
            assert SECRET not in str(refused.value)
        PostgresStore(as_user(url, "guest", "right")).connect().close()
    finally:
        rules.write_text(before)
        run_sql(url, "SELECT pg_reload_conf()")


def test_options_of_the_address_reach_the_server(url: str) -> None:
    """A search_path in the address decides where the ledger is; a missing schema is named."""
    address = f"{url}&options=-c%20search_path%3Dledger"
    with pytest.raises(StoreUnavailable, match="create the schema"):
        PostgresStore(address).connect()
    run_sql(url, "CREATE SCHEMA ledger")
    PostgresStore(address).connect().close()
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT to_regclass('ledger.oncegate_entry') IS NOT NULL").fetchone()
    assert found == (True,)


# --- rights, versions, schemas ---------------------------------------------------------------------


def test_missing_right_to_create_says_what_to_do(url: str) -> None:
    """A role that may not create tables is told who should, and nothing half done is left."""
    run_sql(url, "DROP ROLE IF EXISTS clerk", "CREATE ROLE clerk LOGIN")
    store = PostgresStore(as_user(url, "clerk"))
    with pytest.raises(StoreUnavailable, match="oncegate migrate --print"):
        store.migrate()
    with pytest.raises(StoreUnavailable, match="grant"):
        store.connect()
    assert not store.exists()


def test_role_with_rights_on_the_tables_only_can_work(url: str) -> None:
    """An owner migrates; the role that works needs no right to create anything."""
    PostgresStore(url).migrate()
    run_sql(
        url,
        "DROP ROLE IF EXISTS worker",
        "CREATE ROLE worker LOGIN",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO worker",
    )
    with contextlib.closing(PostgresStore(as_user(url, "worker")).connect()) as session, session.unit():
        assert finish(session, 1)
    run_sql(url, "REVOKE INSERT ON oncegate_log FROM worker")
    with (
        contextlib.closing(PostgresStore(as_user(url, "worker")).connect()) as session,
        pytest.raises(StoreUnavailable, match="grant the user rights"),
        session.unit(),
    ):
        finish(session, 2)
    run_sql(url, "DROP OWNED BY worker", "DROP ROLE worker")


def test_old_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server older than needed is named with what is needed."""
    monkeypatch.setattr(postgres_store, "SERVER_VERSION_MIN", 990000)
    with pytest.raises(StoreUnavailable, match="99 or newer is needed"):
        PostgresStore(url).connect()


def test_schema_from_the_future_is_refused(url: str) -> None:
    """A ledger that a newer version wrote is left alone."""
    store = PostgresStore(url)
    store.migrate()
    run_sql(url, "UPDATE oncegate_meta SET value = '999' WHERE name = 'schema_version'")
    for work in (store.connect, store.migrate, store.pending_migrations):
        with pytest.raises(SchemaMismatch, match="install the newer oncegate"):
            work()


@pytest.mark.damage
@pytest.mark.parametrize("table", ["oncegate_open", "oncegate_step", "oncegate_log", "oncegate_entry"])
def test_lost_table_is_found_and_named(url: str, table: str) -> None:
    """A ledger with a table missing is never used as if it were whole, nor mended by guessing."""
    store = PostgresStore(url)
    store.migrate()
    run_sql(url, f"DROP TABLE {table} CASCADE")
    with pytest.raises(SchemaMismatch, match=table):
        store.migrate()
    (finding,) = [finding for finding in store.examine() if finding.what == "schema"]
    assert not finding.ok
    assert table in finding.value
    with pytest.raises(SchemaMismatch, match=table):
        store.connect()


@pytest.mark.parametrize("table", ["oncegate_open", "oncegate_log", "oncegate_entry"])
def test_table_lost_under_an_open_session_is_named(url: str, table: str) -> None:
    with contextlib.closing(PostgresStore(url).connect()) as session:
        run_sql(url, f"DROP TABLE {table} CASCADE")
        with pytest.raises(SchemaMismatch, match=table), session.unit(single=True):
            session.reserve([reservation(1, quarantine="late")])


def test_log_of_a_restored_dump_is_found(url: str) -> None:
    """Records numbered beyond the server's own transactions: the doctor says so until a process has opened
    the ledger, which then reads them all the same."""
    store = PostgresStore(url)
    with contextlib.closing(store.connect()) as session, session.unit():
        finish(session, 1)
    assert not [finding for finding in store.examine() if finding.what == "log"]
    run_sql(url, "UPDATE oncegate_log SET xact = '999999999999'::xid8")
    (finding,) = [finding for finding in store.examine() if finding.what == "log"]
    assert not finding.ok
    with contextlib.closing(store.connect()) as session, session.unit():
        assert len(session.read_log(0, 10)) == 1
    (finding,) = [finding for finding in store.examine() if finding.what == "log"]
    assert finding.ok


# --- durability ------------------------------------------------------------------------------------


def test_asynchronous_commit_is_refused_unless_accepted(url: str) -> None:
    """A server that acknowledges what it may lose is refused, or the promise is lowered on request (I3)."""
    with setting(url, "synchronous_commit", "off"):
        with pytest.raises(DurabilityRefused, match="durability=accept"):
            PostgresStore(url).connect()
        with Gate(url) as gate:
            gate.handler("bookings", key="{id}")(_never)
            with pytest.raises(DurabilityRefused):
                gate.admit_sync("bookings", {"id": "1"})
        accepted = open_store(f"{url}&durability=accept")
        accepted.connect().close()
        assert accepted.capabilities.durability is Durability.PROCESS_CRASH
        assert [f.what for f in accepted.examine() if not f.ok] == ["synchronous_commit"]
    PostgresStore(url).connect().close()


@pytest.mark.slow
def test_server_without_fsync_is_refused() -> None:
    """fsync=off, as some test setups have it, is no ledger for real events."""
    with PostgresServer({"fsync": "off"}, in_memory=True) as careless:
        url = careless.new_database()
        with pytest.raises(DurabilityRefused, match="fsync=off"):
            PostgresStore(url).connect()
        PostgresStore(url, accept_loss=True).connect().close()


def test_read_only_server_is_refused_with_advice(url: str) -> None:
    """A database that takes no writes says so, on an empty one and on a ledger."""
    read_only = ("default_transaction_read_only", "on")
    with setting(url, *read_only), pytest.raises(StoreUnavailable, match="read-only"):
        PostgresStore(url).connect()
    PostgresStore(url).connect().close()
    with (
        setting(url, *read_only),
        contextlib.closing(PostgresStore(url).connect()) as session,
        pytest.raises(StoreUnavailable, match="read-only"),
        session.unit(single=True),
    ):
        session.reserve([reservation(1)])


# --- the command line ------------------------------------------------------------------------------


def test_commands_work_on_postgresql(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Migrate, list, doctor: the same commands, and no file is looked for."""
    assert main(["migrate", "--url", url, "--check"]) != 0
    assert main(["migrate", "--url", url]) == 0
    with Gate(url) as gate:
        gate.handler("bookings", key="{id}")(_book)
        gate.admit_sync("bookings", {"id": "E-1"})
    capsys.readouterr()
    assert main(["entries", "list", "--url", url]) == 0
    assert "committed" in capsys.readouterr().out
    assert main(["doctor", "--url", url]) == 0
    told = capsys.readouterr().out
    for words in ("PostgreSQL 18", "synchronous_commit", "replication", "1 committed", "writing"):
        assert words in told


def _never(event: dict[str, str]) -> None:
    raise AssertionError("ran without a durable reservation")


def _book(event: dict[str, str]) -> str:
    return event["id"]


@pytest.mark.parametrize("command", [["doctor"], ["migrate", "--check"], ["entries", "list"]])
def test_commands_never_show_the_password(
    url: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Next steps name the command to type without the secret that was typed before."""
    for address in (as_user(url, "oncegate", SECRET), f"postgresql://u:{SECRET}@127.0.0.1:1/db"):
        assert main([*command, "--url", address]) != 0
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    assert "oncegate migrate" in told.out + told.err


@pytest.mark.slow
def test_doctor_names_a_lost_table(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A half-lost ledger fails the examination with a line for people, not with a driver's error."""
    PostgresStore(url).migrate()
    run_sql(url, "DROP TABLE oncegate_open")
    assert main(["doctor", "--url", url]) == 1
    assert "oncegate_open" in capsys.readouterr().out
