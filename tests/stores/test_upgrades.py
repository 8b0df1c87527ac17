"""A ledger of an older schema, on both stores: brought up to date with all that it knows, or left alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from oncegate import Gate, open_store
from oncegate.cli.main import main
from oncegate.errors import SchemaMismatch
from oncegate.store import Migration
from oncegate.stores.postgres import schema as postgres_schema
from oncegate.stores.sqlite import schema as sqlite_schema
from oncegate.testing import run_forked
from oncegate.testing.postgres import PostgresServer

SCHEMAS: dict[str, ModuleType] = {"sqlite": sqlite_schema, "postgres": postgres_schema}
SQL = """\
-- Entries by a colour; the old ones are grey.
CREATE TABLE oncegate_colour (entry bigint PRIMARY KEY, colour text NOT NULL);
INSERT INTO oncegate_colour SELECT id, 'grey' FROM oncegate_entry;
ALTER TABLE oncegate_entry ADD COLUMN painted_at bigint;
"""


class OldLedger(NamedTuple):
    """A ledger made by the shipped migrations, with one event, and how a newer version is installed."""

    url: str
    schema: ModuleType
    install_newer: Callable[[], Migration]
    remove_newer: Callable[[], None]


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldLedger:
    url, schema = f"sqlite:///{tmp_path / 'ledger.db'}", SCHEMAS[request.param]
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_database()
    assert admit(url) == 1
    shipped = schema.all_migrations()
    number = shipped[-1].number + 1
    record = shipped[-1].record.replace(f"{shipped[-1].number}", f"{number}")
    newer = Migration(number, "colours", SQL, record)

    def install() -> Migration:
        monkeypatch.setattr(schema, "all_migrations", lambda: [*shipped, newer])
        return newer

    return OldLedger(url, schema, install, monkeypatch.undo)


def admit(url: str) -> int:
    """Lets the same event come once more; returns how often its handler ran."""
    runs: list[Any] = []
    with Gate(url) as gate:
        gate.handler("bookings", key="{id}")(runs.append)
        gate.admit_sync("bookings", {"id": "1"})
    return len(runs)


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    with closing(open_store(url).connect()) as session, session.unit():
        return [tuple(row) for row in session.execute(sql, ())]


def version(url: str) -> int:
    ((value,),) = rows(url, "SELECT value FROM oncegate_meta WHERE name = 'schema_version'")
    return int(value)


def test_ledger_of_the_schema_before_is_brought_up_to_date(
    old: OldLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is pending is shown first. Afterwards the ledger has the change and knows its events."""
    newer = old.install_newer()
    capsys.readouterr()

    assert main(["migrate", "--check", "--url", old.url]) == 5
    assert capsys.readouterr().out == f"pending {newer.number:04} colours\n"
    assert main(["migrate", "--print", "--url", old.url]) == 0
    assert capsys.readouterr().out == f"{newer.script}\n"
    with pytest.raises(SchemaMismatch, match="is not up to date; run `oncegate migrate`"):
        open_store(old.url).look().__enter__()

    assert main(["migrate", "--url", old.url]) == 0
    assert capsys.readouterr().out == f"applied {newer.number:04} colours\n"
    assert main(["migrate", "--url", old.url]) == 0
    assert capsys.readouterr().out == ""
    assert rows(old.url, "SELECT entry, colour FROM oncegate_colour") == [(1, "grey")]
    assert version(old.url) == newer.number
    assert admit(old.url) == 0


def test_gate_that_opens_an_older_ledger_brings_it_up_to_date(old: OldLedger) -> None:
    """Nothing runs a second time, and the ledger is of the new schema."""
    newer = old.install_newer()

    assert admit(old.url) == 0

    assert version(old.url) == newer.number
    assert rows(old.url, "SELECT painted_at FROM oncegate_entry") == [(None,)]


def test_version_from_before_refuses_the_newer_ledger(old: OldLedger) -> None:
    """A downgrade of the program changes nothing and says what to install."""
    newer = old.install_newer()
    store = open_store(old.url)
    store.migrate()
    old.remove_newer()

    told = (
        f"has schema {newer.number}, this version .* knows {newer.number - 1}; install the newer oncegate"
    )
    for work in (store.connect, store.migrate, store.pending_migrations, lambda: store.look().__enter__()):
        with pytest.raises(SchemaMismatch, match=told):
            work()


def test_running_process_of_the_version_before_goes_on_beside_the_new_one(old: OldLedger) -> None:
    """Given a rolling upgrade: its open connections go on, its events are known to the new version."""
    runs: list[Any] = []
    with Gate(old.url) as before:
        before.handler("bookings", key="{id}")(runs.append)
        before.admit_sync("bookings", {"id": "2"})
        old.install_newer()
        open_store(old.url).migrate()
        with Gate(old.url) as after:
            after.handler("bookings", key="{id}")(runs.append)
            after.admit_sync("bookings", {"id": "3"})
            old.remove_newer()
            for number in "1234":
                before.admit_sync("bookings", {"id": number})
            for number in "1234":
                after.admit_sync("bookings", {"id": number})
    assert [one["id"] for one in runs] == ["2", "3", "4"]


def test_record_that_is_older_than_the_tables_is_refused(old: OldLedger) -> None:
    """To apply the migration again could only fail."""
    newer = old.install_newer()
    store = open_store(old.url)
    store.migrate()
    with closing(store.connect()) as session, session.unit():
        back = f"UPDATE oncegate_meta SET value = {newer.number - 1} WHERE name = 'schema_version'"
        session.execute(back, ())

    told = f"has oncegate_colour of migration {newer.number:04} already"
    for work in (store.connect, store.migrate, store.pending_migrations, lambda: store.look().__enter__()):
        with pytest.raises(SchemaMismatch, match=told):
            work()


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [True, False], ids=["creating", "upgrading"])
def test_migration_that_is_killed_leaves_nothing(
    old: OldLedger, is_new: bool, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Given a process that dies between the last statement and the commit; the next one does it all."""
    newer = old.install_newer()
    url, before = old.url, newer.number - 1
    if is_new:
        url = f"sqlite:///{tmp_path / 'new.db'}" if old.schema is sqlite_schema else postgres.new_database()
        before = 0
    apply = old.schema._apply

    def die_after(connection: Any, migration: Migration) -> None:
        apply(connection, migration)
        if migration == newer:
            os.kill(os.getpid(), signal.SIGKILL)

    def migrate() -> None:
        old.schema._apply = die_after  # type: ignore[attr-defined]  # in the child alone
        open_store(url).migrate()

    code, _ = run_forked(migrate)

    store = open_store(url)
    assert code == -signal.SIGKILL
    assert [one.number for one in store.pending_migrations()] == list(range(before + 1, newer.number + 1))
    assert [one.number for one in store.migrate()] == list(range(before + 1, newer.number + 1))
    assert admit(url) == is_new
    assert version(url) == newer.number
