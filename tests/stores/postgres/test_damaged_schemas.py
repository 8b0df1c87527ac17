"""A schema that was changed by hand: named with its cause and the next step, wherever it is met first."""

from __future__ import annotations

import contextlib
from importlib import resources

import psycopg
import pytest

from oncegate import Gate
from oncegate.cli.main import main
from oncegate.errors import SchemaMismatch
from oncegate.stores.postgres import PostgresStore, catalogue, schema
from oncegate.testing.postgres import PostgresServer
from tests.support.ledgers import new_ledger

pytestmark = pytest.mark.damage

NEWEST = schema.newest()
ARGUED = "restore oncegate_meta from a backup"


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """A whole ledger in a database of its own, which is not handed out again."""
    return new_ledger(postgres)


def run_sql(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def doctor(url: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the doctor says; it must have failed, and known what it met."""
    capsys.readouterr()
    assert main(["doctor", "--url", url]) == 1
    told = capsys.readouterr()
    assert "unexpected" not in told.err
    return told.out


def test_the_list_is_what_the_migrations_make(url: str) -> None:
    """Whoever adds a migration writes the list anew: each line is what `things_in` finds, sorted."""
    with psycopg.connect(url) as connection:
        found = sorted(catalogue.things_in(connection))
    kept = (resources.files("oncegate.stores.postgres") / "catalogue.txt").read_text()
    assert kept.splitlines() == [" ".join(thing).rstrip() for thing in found]


def test_whole_ledger_in_another_schema_has_lost_nothing(url: str) -> None:
    """The place that the search_path leads to is looked at; what others keep beside it does not matter."""
    run_sql(url, "CREATE SCHEMA ledger", "CREATE TABLE oncegate_of_ours (id int)")
    elsewhere = f"{url}&options=-c%20search_path%3Dledger"
    PostgresStore(elsewhere).connect().close()
    run_sql(url, "DROP TABLE oncegate_entry CASCADE")
    (finding,) = [one for one in PostgresStore(elsewhere).examine() if one.what == "schema"]
    assert finding.ok


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (
            "UPDATE oncegate_meta SET value = '0' WHERE name = 'schema_version'",
            "has oncegate_meta of migration 0001",
        ),
        ("DELETE FROM oncegate_meta WHERE name = 'schema_version'", "no record of its schema"),
        ("UPDATE oncegate_meta SET value = 'x' WHERE name = 'schema_version'", "'x' as the schema"),
        ("DROP TABLE oncegate_meta", "no record of its schema"),
    ],
)
def test_record_of_the_schema_that_is_wrong_is_told_with_what_to_do(
    url: str, damage: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No advice leads in a circle: doctor, migrate and a gate say the same, and nothing is applied."""
    run_sql(url, damage)
    store = PostgresStore(url)
    assert store.exists()
    for work in (store.pending_migrations, store.migrate, store.connect, lambda: store.look().__enter__()):
        with pytest.raises(SchemaMismatch, match=ARGUED) as refused:
            work()
        assert named in str(refused.value)
    assert named in doctor(url, capsys)
    assert main(["migrate", "--url", url]) != 0
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("number", [1, 2, 27])
def test_ledger_of_a_development_version_is_refused_everywhere(
    url: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its numbers are of other migrations: it is never taken for an empty ledger, nor for an older one."""
    named = f"UPDATE oncegate_meta SET name = 'schema', value = '{number}' WHERE name = 'schema_version'"
    run_sql(url, named)
    store = PostgresStore(url)
    for work in (store.pending_migrations, store.migrate, store.connect, lambda: store.look().__enter__()):
        with pytest.raises(SchemaMismatch, match=r"made by a development version before 0\.1\.0; "):
            work()
    assert "made by a development version before 0.1.0; " in doctor(url, capsys)
    assert [one.what for one in store.examine() if not one.ok] == ["schema"]


def test_the_named_statement_mends_the_record(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_sql(url, "DELETE FROM oncegate_meta WHERE name = 'schema_version'")
    told = doctor(url, capsys)
    run_sql(url, told.partition("run: ")[2].partition(";")[0])
    assert main(["doctor", "--url", url]) == 0


def test_migration_that_meets_something_missing_says_which(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of an older schema was dropped before the ledger is brought up to date."""
    shipped = schema.all_migrations()
    more = shipped[-1].__class__(
        NEWEST + 1, "more", "ALTER TABLE oncegate_tally ADD COLUMN more int;", "SELECT 1;"
    )
    run_sql(url, "DROP TABLE oncegate_tally")
    monkeypatch.setattr(schema, "all_migrations", lambda: [*shipped, more])
    with pytest.raises(SchemaMismatch, match=rf"migration {more.number:04} more .*oncegate_tally.*backup"):
        PostgresStore(url).migrate()


@pytest.mark.parametrize(
    ("damage", "named", "mending"),
    [
        (
            "DROP INDEX oncegate_entry_key",
            "index oncegate_entry_key (unique on oncegate_entry (key))",
            "CREATE UNIQUE INDEX oncegate_entry_key ON oncegate_entry (key);",
        ),
        (
            "ALTER TABLE oncegate_open DROP CONSTRAINT oncegate_open_pkey",
            "index oncegate_open_pkey",
            "ALTER TABLE oncegate_open ADD CONSTRAINT oncegate_open_pkey PRIMARY KEY (entry);",
        ),
        (
            "ALTER TABLE oncegate_name DROP CONSTRAINT oncegate_name_text_key",
            "index oncegate_name_text_key",
            "CREATE UNIQUE INDEX oncegate_name_text_key ON oncegate_name (text);",
        ),
        (
            "ALTER TABLE oncegate_log ALTER COLUMN xact DROP DEFAULT",
            "column oncegate_log.xact",
            "ALTER TABLE oncegate_log ALTER COLUMN xact SET DEFAULT pg_current_xact_id();",
        ),
        (
            "DELETE FROM oncegate_ticks",
            "row oncegate_ticks",
            "INSERT INTO oncegate_ticks (ticks, wall) SELECT now, now FROM oncegate_clock() AS now",
        ),
        ("ALTER TABLE oncegate_entry DROP COLUMN reason CASCADE", "column oncegate_entry.reason", ""),
        ("DROP SEQUENCE oncegate_number", "sequence oncegate_number", ""),
        ("DROP FUNCTION oncegate_month", "function oncegate_month", ""),
        ("DELETE FROM oncegate_meta WHERE name = 'ledger_id'", "row oncegate_meta (ledger_id)", ""),
        (
            "ALTER TABLE oncegate_log ALTER COLUMN position DROP IDENTITY",
            "column oncegate_log.position",
            "",
        ),
    ],
)
def test_loss_that_fails_every_event_is_named_everywhere(
    url: str, damage: str, named: str, mending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gate does not open such a ledger; where one statement mends it, that is the next step."""
    run_sql(url, damage)
    store = PostgresStore(url)
    for work in (store.migrate, store.connect, lambda: store.look().__enter__()):
        with pytest.raises(SchemaMismatch) as refused:
            work()
        assert named in str(refused.value)
        assert (mending or "restore the database from a backup") in str(refused.value)
    with Gate(url) as gate:
        gate.handler("bookings", key="{id}")(lambda event: None)
        with pytest.raises(SchemaMismatch):
            gate.admit_sync("bookings", {"id": "1"})
    told = doctor(url, capsys)
    assert named in told
    assert mending in told
    if mending:
        run_sql(url, mending)
        assert main(["doctor", "--url", url]) == 0


@pytest.mark.parametrize(
    ("damage", "named", "mending"),
    [
        (
            "DROP INDEX oncegate_duplicate_undecided",
            "index oncegate_duplicate_undecided",
            "CREATE INDEX oncegate_duplicate_undecided ON oncegate_duplicate (entry) WHERE undecided;",
        ),
        (
            "ALTER TABLE oncegate_entry ALTER COLUMN label DROP NOT NULL",
            "column oncegate_entry.label",
            "ALTER TABLE oncegate_entry ALTER COLUMN label SET NOT NULL;",
        ),
        ("DROP VIEW oncegate_entries", "view oncegate_entries", ""),
    ],
)
def test_loss_that_events_get_over_is_the_doctors_alone(
    url: str, damage: str, named: str, mending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gate that is slower without an index goes on: to refuse events would be worse."""
    run_sql(url, damage)
    with contextlib.closing(PostgresStore(url).connect()):
        pass
    told = doctor(url, capsys)
    assert named in told
    assert mending in told


def test_many_losses_are_one_line(url: str) -> None:
    run_sql(
        url, *(f"DROP TABLE oncegate_{name} CASCADE" for name in ("lane", "head", "feed", "ack", "step"))
    )
    with pytest.raises(SchemaMismatch, match="and 2 more"):
        PostgresStore(url).connect()
