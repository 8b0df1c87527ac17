"""`oncegate migrate`: makes a ledger, and says beforehand what it would do."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from oncegate.stores.sqlite import schema
from tests.cli.conftest import contents


def _named(state: str) -> str:
    return "".join(f"{state} {one.number:04} {one.name}\n" for one in schema.all_migrations())


def test_migrate_creates_a_ledger_and_says_so(call, tmp_path):
    """The first call makes the ledger, the second finds nothing to do."""
    first = call("migrate")
    assert (first.code, first.out) == (0, _named("applied"))
    assert first.err == "sqlite:///oncegate.db was created\n"
    before = contents(tmp_path)
    second = call("migrate")
    assert (second.code, second.out) == (0, "")
    assert "up to date already" in second.err
    assert contents(tmp_path) == before


def test_check_tells_by_exit_code_and_changes_nothing(call, tmp_path):
    """A deployment can ask before it starts."""
    ended = call("migrate", "--check")
    assert (ended.code, ended.out) == (5, _named("pending"))
    assert ended.err.endswith("pending; apply with: oncegate migrate\n")
    assert not list(tmp_path.iterdir())
    call("migrate")
    assert call("migrate", "--check").code == 0


def test_check_knows_the_address_from_the_environment(call, tmp_path, monkeypatch):
    """ONCEGATE_URL is used where no --url is given."""
    monkeypatch.setenv("ONCEGATE_URL", "sqlite:///elsewhere.db")
    assert call("migrate").code == 0
    assert (tmp_path / "elsewhere.db").exists()


def test_printed_sql_makes_the_same_ledger_by_hand(call, tmp_path):
    """Who applies the printed SQL themselves gets the very schema, its record included."""
    printed = call("migrate", "--print")
    assert printed.code == 0
    assert not list(tmp_path.iterdir())
    by_hand = sqlite3.connect(tmp_path / "by_hand.db", isolation_level=None)
    by_hand.executescript(printed.out)
    by_hand.close()
    call("migrate", "--url", "sqlite:///by_tool.db")
    assert call("migrate", "--check", "--url", "sqlite:///by_hand.db").code == 0
    assert _schema(tmp_path / "by_hand.db") == _schema(tmp_path / "by_tool.db")
    assert call("entries", "list", "--url", "sqlite:///by_hand.db").code == 0


def _schema(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    version = connection.execute(
        "SELECT name, value FROM oncegate_meta WHERE name = 'schema_version'"
    ).fetchall()
    connection.close()
    return rows + version


def test_nothing_pending_prints_no_sql(call, ledger):
    """An up-to-date ledger needs nothing, and standard output stays empty."""
    ended = call("migrate", "--print")
    assert (ended.code, ended.out, ended.err) == (0, "", "nothing is pending\n")


def test_json_is_one_object_a_migration(call):
    """Programs get numbers and states instead of sentences."""
    pending, *_ = [json.loads(line) for line in call("migrate", "--print", "--json").out.splitlines()]
    assert pending["state"] == "pending"
    assert pending["sql"].endswith("COMMIT;")
    applied = call("migrate", "--json").out.splitlines()[0]
    assert json.loads(applied) == {"number": 1, "name": "ledger", "state": "applied"}
