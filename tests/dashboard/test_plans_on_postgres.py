"""On PostgreSQL too no hot page reads a whole table: the plan of every statement is looked at (issue 7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from oncegate.dashboard.pages import HOT_PAGES
from oncegate.dashboard.request_context import RequestContext, Tools
from oncegate.dashboard.waiting_page import badge
from oncegate.journal.rollback.plans import PlanBook
from oncegate.model.states import State
from oncegate.sender.trace import journey
from oncegate.stores.postgres.session import PostgresSession
from oncegate.stores.postgres.wire import WireCommand
from oncegate.testing.postgres import PostgresServer
from tests.dashboard.big_ledger import fill
from tests.dashboard.scene import Scene
from tests.dashboard.test_plans import QUERIES, VISITORS

pytestmark = pytest.mark.slow

# Tables with a row for each event, key or delivery. Others have one for each name, reader or open entry.
BIG: Final = frozenset(
    f"oncegate_{name}"
    for name in ("entry", "log", "payload", "outcome", "delivery", "ack", "lane", "head", "feed",
                 "feed_key", "repeat", "attempt", "content", "trace", "tally", "replay", "replay_order")
)  # fmt: skip
PARTITION: Final = re.compile(r"_(?:\d{6}|other)$")  # a month's part of a table
LANE: Final = {"destination": "orders", "tenant": "acme", "key": "A-17"}


@pytest.fixture(scope="module")
def filled() -> Iterator[Scene]:
    """A ledger with enough rows for the planner to show what it would do with more."""
    with PostgresServer(in_memory=True) as server:
        url = server.new_database()
        scene = Scene(url)
        scene.quiet()
        scene.incident()
        scene.replaying()
        PlanBook(scene.gate.engine.commits, scene.gate.engine.clock).want(1, "", "anna")
        fill(url, 20_000, minutes=600)
        yield scene
        scene.gate.close()


def visited(scene: Scene, session: Any, path: str) -> None:
    """Shows a page with every filter that the tests know, and its badge."""
    tools = Tools(scene.gate.engine.commits, scene.gate.engine.clock, lambda: ())
    entry = scene.waiting(State.HELD, "payouts")
    plan = PlanBook(tools.commits, tools.clock).all(session)[0].name
    for text in [*QUERIES.get(path, [""]), *(["tenant:acme"] if path in QUERIES else [])]:
        asks = {"q": text, "id": "evt-1", "name": "routes", **(LANE if path == "/lane" else {})}
        for visitor in VISITORS[: 1 if "{entry}" in path or "{plan}" in path else 2]:
            parts = {"entry": str(entry), "replay": "abc", "plan": plan}
            HOT_PAGES[path](tools, session, RequestContext(path, parts=parts, query=asks, visitor=visitor))
    if path == "/replays":
        for asks in ({"destination": "orders", "state": "running"}, {"destination": "orders"}):
            HOT_PAGES[path](tools, session, RequestContext(path, query=asks))
    badge(session, None)


def steps(plan: dict[str, Any], under_limit: bool = False) -> Iterator[tuple[dict[str, Any], bool]]:
    """All steps of a plan, each with whether a limit ends it early."""
    yield plan, under_limit
    # What sorts or adds up reads everything below it, whatever is wanted of it.
    reads_all = plan["Node Type"] in ("Sort", "Aggregate", "Hash", "Materialize")
    below = plan["Node Type"] == "Limit" or (under_limit and not reads_all)
    for part in plan.get("Plans", ()):
        yield from steps(part, below)


def reads_whole_table(step: dict[str, Any], under_limit: bool) -> bool:
    if PARTITION.sub("", step.get("Relation Name", "")) not in BIG:
        return False
    if step["Node Type"] == "Seq Scan":
        return True
    if "Index Name" not in step or step["Node Type"] == "Bitmap Index Scan":
        return False
    is_partial = step["Index Name"] in ("oncegate_head_open", "oncegate_log_people")
    return "Index Cond" not in step and not under_limit and not is_partial


@pytest.mark.parametrize("path", sorted(HOT_PAGES))
def test_no_page_reads_a_whole_table(filled: Scene, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a filled ledger; each statement that a page sends goes along an index, or ends at a limit."""
    check_plans(filled, monkeypatch, lambda session: visited(filled, session, path))


@pytest.mark.parametrize("name", ["L-7", "evt-1", "0190a5c2-7b3e-7ccc-8f00-0123456789ab", "0" * 48])
def test_no_trace_reads_a_whole_table(filled: Scene, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is named: a key of a lane, an emitted event, a correlation, a key of the gate (D9)."""
    check_plans(filled, monkeypatch, lambda session: journey(session, name))


def check_plans(scene: Scene, monkeypatch: pytest.MonkeyPatch, look: Callable[[Any], object]) -> None:
    """Looks at the plan of every statement that somebody sends."""
    exchange, asked = PostgresSession._exchange, []

    def noting(session: PostgresSession, commands: list[WireCommand]) -> Any:
        asked.extend(commands)
        return exchange(session, commands)

    with scene.gate.engine.store.look() as session:
        assert isinstance(session, PostgresSession)
        with monkeypatch.context() as patch:
            patch.setattr(PostgresSession, "_exchange", noting)
            look(session)
        plans = [(one.sql, explained(session, one)) for one in asked if is_query(one.sql)]

    assert plans
    for sql, plan in plans:
        whole = [one["Relation Name"] for one, ends in steps(plan) if reads_whole_table(one, ends)]
        assert not whole, (whole, sql)


def is_query(sql: str) -> bool:
    return sql.lstrip().upper().startswith(("SELECT", "WITH"))


def explained(session: PostgresSession, command: WireCommand) -> dict[str, Any]:
    """The plan of a statement with its parameters."""
    asked = WireCommand(f"EXPLAIN (FORMAT JSON) {command.sql}", command.parameters)
    (((document,),),) = session._exchange([asked])
    found: dict[str, Any] = document[0]["Plan"]
    return found
