"""No hot page reads a whole table, whatever the ledger holds: every statement's plan is looked at."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

import pytest

from oncegate.clock import SystemClock
from oncegate.dashboard import entries_page
from oncegate.dashboard.auth import ANYBODY, Visitor
from oncegate.dashboard.operators import Role
from oncegate.dashboard.pages import HOT_PAGES
from oncegate.dashboard.request_context import RequestContext, Tools
from oncegate.dashboard.waiting_page import badge
from oncegate.journal.rollback.plans import PlanBook
from oncegate.model.states import State
from oncegate.sender.trace import journey
from oncegate.stores.sqlite import SqliteStore
from oncegate.stores.sqlite.session import JoinedSession
from tests.dashboard.scene import Scene

SCAN = re.compile(r"^SCAN (oncegate_\w+|entry|log|lane|delivery|open|replayed|again|later)\b(?! USING)")
VISITORS = (ANYBODY, Visitor("t", Role.VIEWER, "acme"))
QUERIES = {
    "/entries": [
        "",
        "zzz",
        "state:held",
        "state:committed",
        "key:3f9a",
        "surface:routes age>1m",
        "reason:x",
        "resource:S-9",
    ],
    "/waiting": ["", "surface:routes", "reason:skew waits>1m"],
}


@pytest.fixture
def reader(scene: Scene) -> Iterator[tuple[JoinedSession, sqlite3.Connection, list[str]]]:
    store = scene.gate.engine.store
    assert isinstance(store, SqliteStore)
    connection = sqlite3.connect(store.path, isolation_level=None)
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    yield JoinedSession(connection, store.path, SystemClock()), connection, asked
    connection.close()


@pytest.mark.parametrize("path", sorted(HOT_PAGES))
def test_a_page_reads_along_indexes_only(scene, reader, path, monkeypatch):
    monkeypatch.setattr(entries_page, "SEARCH_NUMBERS", 5)  # this ledger is a small one
    session, connection, asked = reader
    tools = Tools(scene.gate.engine.commits, scene.gate.engine.clock, lambda: ())
    entry = scene.waiting(State.HELD, "payouts")
    lane = {"destination": "orders", "tenant": "acme", "key": "A-17"}
    scene.replaying()
    plan = PlanBook(tools.commits, tools.clock).want(1, "", "anna")
    for text in QUERIES.get(path, [""]):
        asks = {"q": text, "id": "evt-1", "name": "routes", **(lane if path == "/lane" else {})}
        for visitor in VISITORS[: 1 if "{entry}" in path or "{plan}" in path else 2]:
            parts = {"entry": str(entry), "replay": "abc", "plan": plan}
            HOT_PAGES[path](tools, session, RequestContext(path, parts=parts, query=asks, visitor=visitor))
    if path == "/replays":
        asks = {"destination": "orders", "state": "running"}
        HOT_PAGES[path](tools, session, RequestContext(path, query=asks))
    badge(session, None)
    check_plans(connection, asked)


@pytest.mark.parametrize("name", ["A-17", "evt-1", "0190a5c2-7b3e-7ccc-8f00-0123456789ab", "0" * 48])
def test_a_trace_reads_along_indexes_only(reader, name):
    session, connection, asked = reader
    journey(session, name)
    check_plans(connection, asked)


def check_plans(connection: sqlite3.Connection, asked: list[str]) -> None:
    connection.set_trace_callback(None)
    assert asked
    for statement in dict.fromkeys(one for one in asked if one.lstrip().upper().startswith("SELECT")):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        scans = [step for step in plan if SCAN.search(step)]
        assert not scans or is_bounded(statement), (scans, statement)


def is_bounded(statement: str) -> bool:
    """A walk from the newest row that ends after so many, or a table that has a row a name."""
    small = re.search(r"FROM oncegate_(name|meta|document|destination|notice|feed_\w+)\b", statement)
    return small is not None or ("WHERE" not in statement and "LIMIT" in statement)
