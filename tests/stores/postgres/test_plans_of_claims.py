"""Statements of claims are planned to look rows up, also where the plan was made in a quiet moment (E4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from oncegate import AsyncOnce, Gate
from oncegate.store import Session
from oncegate.stores.postgres import (
    fused,
    join_statements,
    lane_statements,
    reserve_statements,
    settle_statements,
    statements,
)
from oncegate.stores.postgres.placeholders import to_numbered
from oncegate.stores.postgres.store import PostgresStore
from oncegate.testing.spare_ledgers import SpareLedgers

EVENTS = 600
EXECUTIONS = 9
PLANNED_FIRST = 5  # a server plans that often for the values it is given, then compares
ASKED = {
    "reserve": reserve_statements.RESERVE,
    "reserve one": reserve_statements.RESERVE_ONE,
    "take over": statements.TAKE_OVER,
    "settle": settle_statements.SETTLE,
    "end one": settle_statements.END_ONE,
    "end one in a user's transaction": join_statements.END_FIRST,
    "renew": statements.RENEW,
    "known keys": statements.KNOWN,
    "read": statements.READ,
    "attach": statements.ATTACH,
    "committed": statements.COMMITTED,
}
COSTED = {
    **ASKED,
    "now": statements.NOW,
    "keep time": statements.KEEP_TIME,
    "reserve in a handler's transaction": fused.RESERVE,
    "end in a handler's transaction": fused.END,
    "record": reserve_statements.RECORD,
    "record one": reserve_statements.RECORD_ONE,
    "reserve in a user's transaction": join_statements.RESERVE,
    "settle in a user's transaction": join_statements.SETTLE,
    "known key in a user's transaction": join_statements.KNOWN,
    "enqueue": lane_statements.ENQUEUE,
    "enqueue in a user's transaction": join_statements.ENQUEUE,
    "lease": lane_statements.LEASE,
    "finish": lane_statements.FINISH,
    "fail": lane_statements.FAIL,
    "extend": lane_statements.EXTEND,
}
COMPILED_ABOVE = 100_000  # `jit_above_cost` as a server comes
KEPT = {name: ASKED[name] for name in ("known keys", "read", "attach", "committed")}


AS_USERS_PLAN = {
    "end of a first claim in a user's transaction": join_statements.END_FIRST,
    "end of a later claim in a user's transaction": join_statements.END,
    "end without an outcome in a user's transaction": join_statements.END_BARE,
    "end of a commit block": settle_statements.END_FIRST_OR_FAIL,
    "end of a commit block on a later claim": settle_statements.END_ONE_OR_FAIL,
}


@pytest.fixture(scope="module")
def settled_url(spare_ledgers: SpareLedgers) -> Iterator[str]:
    """A ledger where much was settled, and that was analysed when nothing was open; tests only plan."""
    url = spare_ledgers.take()
    with Gate(url) as gate:

        @gate.handler("bookings", key="{id}")
        def book(event: dict[str, str], once: AsyncOnce) -> str:
            return event["id"]

        for number in range(EVENTS):
            gate.admit_sync("bookings", {"id": f"E-{number}"})
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")
    yield url
    spare_ledgers.give_back(url)


@pytest.fixture
def session(settled_url: str) -> Iterator[Session]:
    """On that ledger, with connections and plans of its own."""
    opened = PostgresStore(settled_url).connect()
    try:
        yield opened
    finally:
        opened.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every step of a plan."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ASKED)
def test_plan_made_while_nothing_is_open_names_the_rows_it_wants(session: Any, asked: str) -> None:
    """Given a ledger that was analysed at rest; then the kept plan reads no table as a whole: what it
    costs does not grow with what is open, or was since the last vacuum."""
    assert whole_reads(session._connection, ASKED[asked]) == []


@pytest.mark.parametrize("asked", COSTED)
def test_no_plan_seems_so_dear_that_a_server_would_compile_it(session: Any, asked: str) -> None:
    """Given connections that plan without sequential scans; then no statement needs one: a step that is
    switched off adds 1e10 to the cost, and a server with JIT compiles such a plan at every run."""
    plan = kept_plan(session._connection, COSTED[asked])
    assert plan["Total Cost"] < COMPILED_ABOVE
    assert [step["Node Type"] for step in nodes(plan) if step.get("Disabled")] == []


@pytest.mark.parametrize("asked", KEPT)
def test_plan_is_kept_however_many_a_batch_holds(session: Any, asked: str) -> None:
    """Given batches of one: a plan for any number must not look dearer, or each is planned anew."""
    connection, sql = session._connection, KEPT[asked]
    connection.execute(f"PREPARE asked AS {to_numbered(sql)}".encode())
    given = ", ".join(_one_of(kind) for kind in re.findall(r"%s(?:::(\w+(?:\[\])?))?", sql))
    for _ in range(EXECUTIONS):
        connection.execute(f"EXPLAIN EXECUTE asked ({given})".encode())

    found = connection.execute("SELECT generic_plans FROM pg_prepared_statements WHERE name = 'asked'")

    assert found.fetchone() == (EXECUTIONS - PLANNED_FIRST,)


def _one_of(kind: str) -> str:
    """A batch of one of a kind, or no value."""
    return f"ARRAY['1'::{kind[:-2]}]" if kind.endswith("[]") else "NULL"


@pytest.mark.parametrize("asked", AS_USERS_PLAN)
def test_users_plan_made_after_a_vacuum_names_the_rows_it_wants(settled_url: str, asked: str) -> None:
    """Given a ledger that was vacuumed at rest, and a connection as a user's program or a commit block has
    it; then its kept plan reads no table as a whole either."""
    with psycopg.connect(settled_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE oncegate_open")
        assert whole_reads(connection, AS_USERS_PLAN[asked]) == []


@pytest.mark.parametrize("asked", AS_USERS_PLAN)
def test_plan_made_on_a_new_ledger_names_what_it_wants_of_the_open(ledger_url: str, asked: str) -> None:
    """Given a ledger where nothing was ever open; then a plan made now is right for a busy one."""
    PostgresStore(ledger_url).migrate()
    with psycopg.connect(ledger_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE oncegate_open")
        assert whole_reads(connection, AS_USERS_PLAN[asked], ("oncegate_open",)) == []


def whole_reads(
    connection: psycopg.Connection[Any],
    sql: str,
    tables: tuple[str, ...] = ("oncegate_open", "oncegate_entry"),
) -> list[dict[str, Any]]:
    """The steps of the kept plan that read these tables without naming rows."""
    reads = [
        step
        for step in nodes(kept_plan(connection, sql))
        if step.get("Relation Name") in tables and step["Node Type"] != "ModifyTable"
    ]
    assert reads
    return [step for step in reads if not {"Index Cond", "Recheck Cond"} & step.keys()]


def kept_plan(connection: psycopg.Connection[Any], sql: str) -> dict[str, Any]:
    """The plan that a connection makes once, for any values."""
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute(f"PREPARE asked AS {to_numbered(sql)}".encode())
    unknown = ", ".join(["NULL"] * sql.count("%s"))
    given = f" ({unknown})" if unknown else ""
    ((found,),) = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked{given}".encode()).fetchall()
    plan: dict[str, Any] = found[0]["Plan"]
    return plan
