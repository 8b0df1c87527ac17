"""How PostgreSQL goes about the lanes' statements: by look-ups, and judged anew after a wait (I4, I11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from oncegate.store import Acknowledgement, Advanced, Failure, HeadHeld, Session
from oncegate.stores.postgres import PostgresStore, lane_statements
from oncegate.stores.postgres.placeholders import to_numbered
from oncegate.testing import ManualClock
from tests.lanes.lane_site import LEASE_MS, lease, outgoing
from tests.stores.postgres.test_read_committed import wait_until_blocked
from tests.support.gates import running

LANES, EVENTS_EACH = 3_000, 3
FEW_LANES, LONG_PAST = 100, 500
STATEMENTS = {
    "PEEK": lane_statements.PEEK,
    "LEASE": lane_statements.LEASE,
    "FINISH": lane_statements.FINISH,
    "FAIL": lane_statements.FAIL,
    "EXTEND": lane_statements.EXTEND,
    "SETTLE_EMPTY": lane_statements.SETTLE_EMPTY,
}
TABLES = ("oncegate_head", "oncegate_delivery", "oncegate_lane", "oncegate_dead_letter", "oncegate_replay")


@pytest.fixture
def store(ledger_url: str) -> PostgresStore:
    return PostgresStore(ledger_url, clock=ManualClock())


@pytest.fixture
def session(store: PostgresStore) -> Iterator[Session]:
    with closing(store.connect()) as opened:
        yield opened


def enqueue(session: Session, lanes: int) -> None:
    with session.unit():
        session.enqueue(
            [
                outgoing(f"e{lane}-{number}", f"k{lane}")
                for lane in range(lanes)
                for number in range(EVENTS_EACH)
            ]
        )


def add_past(connection: Any) -> None:
    """Gives each lane a past; the server guesses more rows behind a look-up of a table that has grown."""
    connection.execute(
        f"""INSERT INTO oncegate_delivery
            (lane, seq, created_at, destination, type, event, fingerprint, context, payload)
        SELECT lane.id, seq, 0, lane.destination, 1, lane.id || '.' || seq, 'f', '{{}}',
            repeat('x', 1500)::bytea
        FROM oncegate_lane AS lane, generate_series(101, {100 + LONG_PAST}) AS seq""".encode()
    )


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every step of a plan."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def planned(connection: Any, sql: str) -> list[dict[str, Any]]:
    """The steps that read tables, in the plan that is kept for a statement whatever its parameters are."""
    unknown = ", ".join(["NULL"] * sql.count("%s"))
    connection.execute(f"PREPARE asked AS {to_numbered(sql)}")
    row = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({unknown})").fetchone()
    connection.execute("DEALLOCATE asked")
    steps = nodes(row[0][0]["Plan"])
    return [step for step in steps if "Relation Name" in step and step["Node Type"] != "ModifyTable"]


@pytest.mark.parametrize("lanes", [LANES, FEW_LANES])
@pytest.mark.parametrize("is_analysed", [True, False])
def test_workers_look_up_heads_and_events_and_never_read_them_all(
    session: Any, store: PostgresStore, is_analysed: bool, lanes: int
) -> None:
    """Given lanes in their thousands, or a few with a long past; then the kept plan of each statement finds
    heads and events by index, and an event by its seq: the cost does not grow with the number of keys or
    with a key's past."""
    enqueue(session, lanes)
    connection = session._connection
    if lanes == FEW_LANES:
        add_past(connection)
    if is_analysed:
        connection.execute(f"ANALYZE {', '.join(TABLES)}".encode())
    connection.execute("SET plan_cache_mode = force_generic_plan")
    for name, sql in STATEMENTS.items():
        _check_look_ups(name, planned(connection, sql))


def _check_look_ups(name: str, steps: list[dict[str, Any]]) -> None:
    looked_up: dict[str, list[str]] = {
        table: [
            step.get("Index Cond", step.get("Recheck Cond", "")) for step in steps if _reads(step, table)
        ]
        for table in TABLES
    }
    assert all(found for conditions in looked_up.values() for found in conditions), (name, looked_up)
    events = looked_up["oncegate_delivery"]
    assert all("seq" in found and "lane" in found for found in events), name
    assert (len(events) > 0) == (name in ("LEASE", "FINISH"))


def _reads(step: dict[str, Any], table: str) -> bool:
    return bool(step["Relation Name"] == table)


def acknowledge(store: PostgresStore, lane_id: int, fence: int) -> Advanced:
    with closing(store.connect()) as session, session.unit(single=True):
        (advanced,) = session.finish([Acknowledgement(lane_id, 1, fence, 7, "a", 1, "200", LEASE_MS, 7)])
    return advanced


@pytest.mark.parametrize(
    ("change", "counts"), [("fence = fence + 1", False), ("due_at = due_at + 1", True)]
)
def test_an_acknowledgement_that_had_to_wait_is_judged_by_what_is_there_then(
    session: Session, store: PostgresStore, change: str, counts: bool
) -> None:
    """Given a head that somebody else is changing; when that commits, an old fence changes nothing, and
    one that is still right moves the lane on."""
    enqueue(session, 1)
    (head,) = lease(session)
    with psycopg.connect(store._url) as other:
        other.execute(f"UPDATE oncegate_head SET {change} WHERE lane = %s".encode(), (head.lane_id,))
        with running(lambda: acknowledge(store, head.lane_id, head.fence)) as answers:
            wait_until_blocked(store)
            other.commit()
    assert answers[0].done is counts
    assert (answers[0].successor is not None) is counts
    with store.look() as reader:
        lane = reader.find_lane(head.destination, "", head.key)
    assert lane is not None
    assert lane.head_seq == 1 + counts


def test_failing_and_extending_wait_and_are_judged_anew_too(session: Session, store: PostgresStore) -> None:
    """Given a head that somebody else takes over; when both have waited for it, neither changes it."""
    enqueue(session, 1)
    (head,) = lease(session)

    def fail() -> Any:
        with closing(store.connect()) as another, another.unit(single=True):
            return another.fail([Failure(head.lane_id, head.fence, head.holder, 1_000, "500")])

    def extend() -> Any:
        with closing(store.connect()) as another, another.unit(single=True):
            return another.extend([HeadHeld(head.lane_id, head.fence, head.holder, LEASE_MS)])

    with psycopg.connect(store._url) as other:
        other.execute("UPDATE oncegate_head SET fence = fence + 1")
        with running(fail, extend) as answers:
            wait_until_blocked(store, 2)
            other.commit()
    assert answers == [[False], [False]]


def test_workers_statements_are_planned_once_however_small_their_batches(session: Any) -> None:
    """Given events that are leased and acknowledged one by one; then no statement of it was planned anew
    for its parameters, which would cost the server more than the work itself."""
    enqueue(session, 1)
    (head,) = lease(session)
    for _ in range(EVENTS_EACH - 1):
        with session.unit(single=True):
            acks = [
                Acknowledgement(
                    head.lane_id, head.seq, head.fence, head.holder, head.event_id, 1, "200", LEASE_MS, 7
                )
            ]
            (advanced,) = session.finish(acks)
        head = advanced.successor
    with session.unit(single=True):
        assert session.extend([HeadHeld(head.lane_id, head.fence, head.holder, LEASE_MS)]) == [True]
        assert session.fail([Failure(head.lane_id, head.fence, head.holder, 1_000, "500")]) == [True]
    rows = session._connection.execute("SELECT statement, custom_plans FROM pg_prepared_statements")
    planned_anew = dict(rows.fetchall())
    used = [sql for name, sql in STATEMENTS.items() if name != "SETTLE_EMPTY"]
    assert [planned_anew[to_numbered(sql)] for sql in used] == [0] * len(used)
