"""What people and workers ask of the embedded ledger is found by an index, however long the log is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncegate.model.states import State
from oncegate.store import EntryFilter
from oncegate.stores.sqlite import (
    SqliteStore,
    census,
    contents,
    lanes,
    open_entries,
    tallies,
    ticks,
    traces,
)


@pytest.fixture
def session(tmp_path: Path) -> Any:
    opened: Any = SqliteStore(tmp_path / "ledger.db").connect()
    yield opened
    opened.close()


def plan(session: Any, sql: str, parameters: tuple[Any, ...]) -> str:
    """How SQLite would go about it."""
    with session.unit():
        rows = session.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)
    return "\n".join(str(row[3]) for row in rows)


def test_an_entrys_records_are_found_without_reading_the_whole_log(session: Any) -> None:
    """A person's word, and every stranded key, reads one entry's history."""
    assert "SCAN oncegate_log" not in plan(session, census._LOG_OF, (1, 1, 1))


def test_changes_that_ran_twice_are_counted_without_reading_every_entry(session: Any) -> None:
    """Every page counts them: a few open pairs among a million entries."""
    assert "SCAN later" not in plan(session, contents._DOUBLED, ())


def test_what_waits_is_found_without_reading_every_entry(session: Any) -> None:
    """A few that wait among a million that are done."""
    conditions, parameters = session._conditions(EntryFilter((State.HELD, State.UNKNOWN)))
    sql = f"SELECT id FROM oncegate_entry WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT 50"
    assert "SCAN oncegate_entry" not in plan(session, sql, tuple(parameters))


def test_pairs_that_wait_are_found_without_reading_those_that_were_dismissed(session: Any) -> None:
    """A few that wait among however many a person has looked at."""
    found = plan(session, contents._OPEN, (0, 0, 0, 0, 20))
    assert "USING INDEX oncegate_duplicate_open" in found, found


@pytest.mark.parametrize(
    "sql", [tallies._WAITING, ticks._LATEST, open_entries.open_entries("id", "state = ?1")]
)
def test_what_is_open_is_found_without_reading_every_entry(session: Any, sql: str) -> None:
    """By its index, by the newest numbers, and by the list of those that last."""
    found = plan(session, sql, (1,) * sum(f"?{place}" in sql for place in (1, 2)))
    assert "SCAN oncegate_entry" not in found.replace("SCAN oncegate_entry USING INDEX", "")
    assert "USING INTEGER PRIMARY KEY (rowid>?)" in found


@pytest.mark.parametrize(
    "name", ["_DUE", "_NEXT_DUE", "_BODY", "_EVENT", "_HELD", "_IS_DEAD", "_NEXT_REPLAY"]
)
def test_a_worker_finds_its_heads_and_events_without_reading_every_lane(session: Any, name: str) -> None:
    """I11: however many lanes there are, are blocked, and however long a lane's past is."""
    sql: str = getattr(lanes, name)
    found = plan(session, sql, (1,) * sql.count("?"))
    assert "SCAN" not in found
    assert name != "_BODY" or "lane=? AND seq=?" in found


@pytest.mark.parametrize("sql", [traces._TRACED, traces._EMITTED_AS, traces._LINKED, traces._PUBLISHED_ON])
def test_a_journey_is_found_without_reading_every_event(session: Any, sql: str) -> None:
    """By its trace or by an event's id, among however many events were emitted."""
    found = plan(session, sql, (*("x",) * (sql.count("?") - 1), 1))
    assert "SCAN sent" not in found
    assert "SCAN link" not in found
    assert "SCAN entry" not in found
