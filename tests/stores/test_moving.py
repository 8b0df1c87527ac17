"""A ledger that is moved from SQLite to PostgreSQL: killed in the middle, resumed, compared, complete."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from oncegate import Failed, Gate, Verdict
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError, SchemaMismatch, StoreCorrupt, StoreUnavailable
from oncegate.maintenance.reconciler import Reconciler
from oncegate.store import EntryFilter, LaneFilter
from oncegate.store.claims import StepState
from oncegate.store.mutations import NOTE_MUTATION
from oncegate.stores.moving import move as moving
from oncegate.stores.moving.move import LedgerMove
from oncegate.stores.moving.tables import COUNTED, LEFT_OUT, LEFT_OUT_COLUMNS, TABLES, unmoved
from oncegate.stores.postgres.store import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.stores.sqlite.schema import all_migrations
from oncegate.testing import CrashReached
from oncegate.wiring import open_store
from tests.support.gates import DeadAfter

EVENTS = 220
# Columns that only the new ledger has, and that it fills by itself or that are empty at first.
NEW_ONLY = {
    *("oncegate_meta.name", "oncegate_meta.value"),
    *("oncegate_ticks.one", "oncegate_ticks.ticks", "oncegate_ticks.wall"),
    *("oncegate_log.xact", "oncegate_content.xact", "oncegate_mutation.xid", "oncegate_name.unused_xact"),
    *("oncegate_feed.id", "oncegate_seen.before", "oncegate_seen.before_at"),
}
PROGRAM = """
import sys
from oncegate.clock import SystemClock
from oncegate.stores.moving.move import LedgerMove
from oncegate.wiring import open_store

def tell(what, done, total):
    print(what, done, flush=True)
    sys.stdin.readline()

LedgerMove(open_store(sys.argv[1]), sys.argv[2], SystemClock(), at_once=50).run(tell)
"""


def handlers(gate: Gate, ran: list[Any]) -> Gate:
    """The program, the same on both ledgers."""

    @gate.handler("orders", key="{id}")
    def take(event: dict[str, Any], once: Any) -> Any:
        ran.append(event["id"])
        if event["id"] == "fails":
            raise Failed("never")
        return {"took": event["id"]}

    gate.handler("late", key="{id}", mode="accept")(lambda event: ran.append(event["id"]))
    return gate


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A ledger with something of everything."""
    url = f"sqlite:///{tmp_path / 'old.db'}"
    with handlers(Gate(url), []) as gate:
        for number in range(EVENTS):
            gate.admit_sync("orders", {"id": number, "text": "nul \0 here"})
        gate.admit_sync("late", {"id": "waits"})
        assert gate.admit_sync("orders", {"id": 1, "other": 1}).verdict is Verdict.CONFLICT
        gate.admit_sync("orders", {"no": "id"})
        with pytest.raises(Failed):
            gate.admit_sync("orders", {"id": "fails"})
    dead = handlers(Gate(url, crashpoints=DeadAfter("reserve.after")), [])
    with pytest.raises(CrashReached):
        dead.admit_sync("orders", {"id": "in flight"})
    with changed(url) as ledger:
        (entry,) = ledger.execute("SELECT id FROM oncegate_entry WHERE state = 1").fetchone()
        ledger.execute(
            "INSERT INTO oncegate_step (entry, name, state, downstream, last_call, first_call)"
            " SELECT id, 'pay', ?, surface, lease_until - 10, lease_until - 70 FROM oncegate_entry"
            " WHERE id = ?",
            (StepState.NOT_APPLIED.value, entry),
        )
        ledger.execute(NOTE_MUTATION, (entry, "stock", '"a"', 0, None, b"{}", 1, 5))
        ledger.execute(NOTE_MUTATION, (entry, "stock", '"a"', 1, b"{}", None, 0, 6))
        ledger.execute("INSERT INTO oncegate_name (text, unused_since) VALUES ('gone', 7)")
    return url


@contextmanager
def changed(url: str) -> Iterator[sqlite3.Connection]:
    """The file of a ledger, for one change."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as ledger, ledger:
        yield ledger


def move(url: str, target: str) -> LedgerMove:
    """A move in small steps."""
    return LedgerMove(cast("SqliteStore", open_store(url)), target, SystemClock(), at_once=50)


def silent(what: str, done: int, total: int) -> None:
    """Hears of progress."""


def interrupt(what: str, done: int, total: int) -> None:
    """Stops the move at its first step."""
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_move_that_is_killed_goes_on_and_nothing_is_forgotten(
    old: str, ledger_url: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    said: list[str] = []
    command = [sys.executable, str(program), old, ledger_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while not said or said[-1] != "copied oncegate_payload 150":
            if said:
                process.stdin.write("\n")
                process.stdin.flush()
            said.append(process.stdout.readline().strip())
            assert said[-1].startswith("copied")
        process.kill()
    with pytest.raises(SchemaMismatch, match="is being filled"):
        handlers(Gate(ledger_url), []).admit_sync("orders", {"id": 1})
    with pytest.raises(SchemaMismatch, match="was moved to postgresql"):
        handlers(Gate(old), []).admit_sync("orders", {"id": 1})
    told: list[tuple[str, int, int]] = []
    report = move(old, ledger_url).run(lambda *one: told.append(one))
    assert told[0] == ("copied oncegate_payload", 200, report.tables["oncegate_payload"])
    ran: list[Any] = []
    with handlers(Gate(ledger_url), ran) as gate:
        for number in range(EVENTS):
            found = gate.admit_sync("orders", {"id": number, "text": "nul \0 here"})
            assert (found.verdict, found.value) == (Verdict.REPLAY, {"took": number})
        assert gate.admit_sync("orders", {"id": "fails"}).error == "never"
        assert not ran
        assert gate.admit_sync("orders", {"id": "new"}).verdict is Verdict.RUN
        with gate.engine.store.look() as session:
            entries = session.entries(EntryFilter(), None, 1000)
    # Numbers go on above all that were given out.
    assert max(entries, key=lambda one: one.fence).label == "new"


def test_open_claims_lanes_and_the_journal_come_along(old: str, ledger_url: str) -> None:
    move(old, ledger_url).run(silent)
    ran: list[Any] = []
    with handlers(Gate(ledger_url), ran) as gate:
        assert gate.admit_sync("orders", {"id": "in flight"}).verdict is Verdict.BUSY  # under its lease
        with psycopg.connect(ledger_url, autocommit=True) as connection:
            connection.execute("UPDATE oncegate_open SET lease_until = 0 WHERE state = 1")
        assert [one.became for one in Reconciler(gate).run_once().looked] == ["finished"]
        assert ran == ["in flight"]
        with gate.engine.store.look() as session:
            (lane,) = session.lanes(LaneFilter(), 0, 9)
            notes = [one.note or "" for one in session.read_log(0, 10_000)]
            entries = session.entries(EntryFilter(), None, 1000)
        assert (lane.key, lane.last_seq) == ("waits", 1)
        assert any("was moved here from sqlite" in note for note in notes)
        assert sum(one.state.label == "quarantined" for one in entries) == 2


def test_times_of_calls_and_changes_of_objects_come_along(old: str, ledger_url: str) -> None:
    report = move(old, ledger_url).run(silent)
    assert (report.tables["oncegate_step"], report.tables["oncegate_mutation"]) == (1, 2)
    with psycopg.connect(ledger_url, autocommit=True) as new, changed(old) as before:
        assert new.execute(
            "SELECT step.state, lease_until - last_call, lease_until - first_call"
            " FROM oncegate_step AS step JOIN oncegate_open USING (entry)"
        ).fetchall() == [(StepState.NOT_APPLIED.value, 10, 70)]
        changes = "SELECT number, entry, name, target, nth, before, after, done, at FROM oncegate_mutation"
        assert new.execute(changes).fetchall() == before.execute(changes).fetchall()
        new.execute(NOTE_MUTATION.replace("?", "%s"), (1, "stock", '"a"', 2, None, None, 1, 7))
        assert new.execute("SELECT max(number) FROM oncegate_mutation").fetchone() == (3,)
        unused = "SELECT unused_since IS NOT NULL FROM oncegate_name WHERE text = 'gone'"
        assert new.execute(unused).fetchone() == (True,)


def test_a_running_process_on_the_old_ledger_is_stopped_with_the_new_address(
    old: str, ledger_url: str
) -> None:
    ran: list[Any] = []
    with handlers(Gate(old), ran) as gate:
        gate.admit_sync("orders", {"id": "before"})
        move(old, ledger_url).run(silent)
        with pytest.raises(StoreUnavailable, match="was moved to postgresql"):
            gate.admit_sync("orders", {"id": "after"})
    assert ran == ["before"]
    with pytest.raises(ConfigError, match="was moved, or is being moved"):
        move(old, ledger_url).run(silent)
    with pytest.raises(ConfigError, match="cannot be undone"):
        move(old, ledger_url).undo()


def test_a_server_that_is_away_is_named_and_the_old_ledger_stays_open(old: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"u@127\.0\.0\.1:1/x cannot be reached") as raised:
        move(old, "postgresql://u:secret@127.0.0.1:1/x").run(silent)
    assert "secret" not in str(raised.value)
    with handlers(Gate(old), []) as gate:
        assert gate.admit_sync("orders", {"id": "again"}).verdict is Verdict.RUN


def test_a_move_that_has_not_ended_is_undone(old: str, ledger_url: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        move(old, ledger_url).run(interrupt)
    move(old, ledger_url).undo()
    with handlers(Gate(old), []) as gate:
        assert gate.admit_sync("orders", {"id": "again"}).verdict is Verdict.RUN
    with pytest.raises(SchemaMismatch, match="was undone"):
        handlers(Gate(ledger_url), []).admit_sync("orders", {"id": 1})
    with pytest.raises(ConfigError, match="was undone; move into another"):
        move(old, ledger_url).run(silent)
    with changed(old) as ledger:
        ledger.execute("INSERT INTO oncegate_meta VALUES ('moved', 'was moved to another')")
    with pytest.raises(ConfigError, match="was moved to another; undo the move with that address"):
        move(old, ledger_url).undo()


def test_an_undo_that_is_killed_leaves_no_move_that_goes_on(
    old: str, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        move(old, ledger_url).run(interrupt)
    with monkeypatch.context() as patch:
        patch.setattr(moving, "_OURS", "fails before the fence is lifted")
        with pytest.raises(sqlite3.OperationalError):
            move(old, ledger_url).undo()
    with pytest.raises(SchemaMismatch, match="was moved to postgresql"):
        handlers(Gate(old), []).admit_sync("orders", {"id": 1})
    with pytest.raises(ConfigError, match="was undone"):
        move(old, ledger_url).run(silent)
    move(old, ledger_url).undo()
    with handlers(Gate(old), []) as gate:
        assert gate.admit_sync("orders", {"id": "again"}).verdict is Verdict.RUN


def test_neither_undo_nor_a_second_run_works_while_a_move_runs(
    old: str, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "LOCK_WAIT_MS", 1)
    refused: list[str] = []
    stages = ["copied oncegate_name", "compared oncegate_name", f"compared {TABLES[-1].name}"]

    def meanwhile(what: str, done: int, total: int) -> None:
        if what in stages and done == total:
            for act in (move(old, ledger_url).undo, lambda: move(old, ledger_url).run(silent)):
                with pytest.raises(ConfigError, match="another `oncegate migrate-ledger`"):
                    act()
                refused.append(what)

    move(old, ledger_url).run(meanwhile)
    assert refused == [stage for stage in stages for _ in range(2)]
    with pytest.raises(SchemaMismatch, match="was moved to postgresql"):
        handlers(Gate(old), []).admit_sync("orders", {"id": 1})


def test_a_fence_is_not_raised_for_a_move_that_was_undone(old: str, ledger_url: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        move(old, ledger_url).run(interrupt)
    move(old, ledger_url).undo()
    with psycopg.connect(ledger_url) as new, pytest.raises(ConfigError, match="stays open"):
        move(old, ledger_url)._fence(new)
    with handlers(Gate(old), []) as gate:
        assert gate.admit_sync("orders", {"id": "again"}).verdict is Verdict.RUN


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE oncegate_entry SET label = 'x' WHERE id = 5",
        "UPDATE oncegate_step SET first_call = NULL",
        "UPDATE oncegate_name SET unused_since = 1 WHERE text = 'gone'",
        "DELETE FROM oncegate_mutation WHERE nth = 1",
    ],
)
def test_rows_that_differ_keep_the_new_ledger_closed(old: str, ledger_url: str, harm: str) -> None:
    def damage(what: str, done: int, total: int) -> None:
        if what == "copied oncegate_tally":
            with psycopg.connect(ledger_url, autocommit=True) as connection:
                assert connection.execute(harm.encode()).rowcount

    with pytest.raises(StoreCorrupt, match=harm.replace("FROM ", "").split()[1]):
        move(old, ledger_url).run(damage)
    with pytest.raises(SchemaMismatch, match="is being filled"):
        handlers(Gate(ledger_url), []).admit_sync("orders", {"id": 1})


def test_a_ledger_in_use_is_not_filled(old: str, ledger_url: str) -> None:
    with handlers(Gate(ledger_url), []) as gate:
        gate.admit_sync("orders", {"id": 1})
        with pytest.raises(ConfigError, match="is in use"):
            move(old, ledger_url).run(silent)
    with handlers(Gate(old), []) as gate:
        assert gate.admit_sync("orders", {"id": "still"}).verdict is Verdict.RUN


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER TABLE oncegate_step ADD COLUMN later", "cannot move: oncegate_step.later;"),
        ("CREATE TABLE oncegate_later (id)", "cannot move: oncegate_later;"),
        ("ALTER TABLE oncegate_step DROP COLUMN first_call", "no such column: first_call"),
    ],
)
def test_a_ledger_with_another_schema_is_refused_and_stays_open(
    old: str, ledger_url: str, change: str, said: str
) -> None:
    with changed(old) as ledger:
        ledger.execute(change)
    with pytest.raises(SchemaMismatch, match=said):
        move(old, ledger_url).run(silent)
    with changed(old) as ledger:
        assert not ledger.execute("SELECT 1 FROM oncegate_meta WHERE name = 'moved'").fetchall()


def test_every_table_and_column_of_the_old_schema_is_moved() -> None:
    """One that is added must be in the list, or be left out on purpose."""
    with closing(sqlite3.connect(":memory:")) as ledger:
        for one in all_migrations():
            ledger.executescript(one.sql)
        assert unmoved(ledger) == []
        made = {name for (name,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        columns = {
            f"{table}.{row[1]}" for table in made for row in ledger.execute(f"PRAGMA table_info({table})")
        }
    assert made >= LEFT_OUT
    assert columns >= LEFT_OUT_COLUMNS


def test_every_table_and_column_of_the_new_schema_is_filled(ledger_url: str) -> None:
    PostgresStore(ledger_url).connect().close()
    with psycopg.connect(ledger_url) as new:
        made = new.execute(
            "SELECT relname || '.' || attname, attidentity <> '' FROM pg_class JOIN pg_attribute"
            " ON attrelid = pg_class.oid WHERE relname LIKE 'oncegate%' AND relkind IN ('r', 'p')"
            " AND NOT relispartition AND attnum > 0 AND NOT attisdropped"
        ).fetchall()
    filled = {f"{table.name}.{column}" for table in TABLES for column in table.columns}
    assert {name for name, _ in made} - filled == NEW_ONLY
    assert filled <= {name for name, _ in made}
    counted = {f"{table}.{column}" for table, column in COUNTED.items()}
    assert {name for name, counts in made if counts} - NEW_ONLY == counted
