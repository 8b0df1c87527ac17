"""Chaos for handlers that write, on real databases: every way passes, broken handlers are caught (D7)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from oncegate import Gate
from oncegate.errors import ConfigError
from oncegate.testing.harness.databases import Database

pytestmark = pytest.mark.slow

TABLES = "CREATE TABLE bookings (slot text NOT NULL, box text NOT NULL)"
EVENT = {"id": "N-1", "box": "MSKU1"}
BOOK = "INSERT INTO bookings (slot, box) VALUES (?, ?)"
ROWS = "SELECT slot, box FROM bookings"
ONE = [("slot-MSKU1", "MSKU1")]
KINDS = ["sqlite", "postgres"]
# A share of them; all of them for each way in `make soak`. Trials on PostgreSQL take ten times as long.
PLANS: dict[str, dict[str, int]] = {
    "sqlite": {"plans": 3, "systematic": 25},
    "postgres": {"plans": 0, "systematic": 3},
}


@pytest.fixture
def gate(tmp_path: Any) -> Iterator[Gate]:
    with Gate(f"sqlite:///{tmp_path}/never-used.db") as gate:
        yield gate


class Shop:
    """Where the user's own code finds its database; pointed at a fresh one by `setup=`."""

    def __init__(self) -> None:
        self.database = Database("")

    def use(self, database: Database) -> None:
        self.database = database


def claim_slot(box: str, idempotency_key: str = "") -> str:
    return f"slot-{box}"


async def claim_slot_async(box: str, idempotency_key: str = "") -> str:
    return f"slot-{box}"


def commit_block(gate: Gate) -> Any:
    terminal = gate.downstream("terminal", honours_key="7d")

    @gate.handler("bookings", key="{id}")
    def book(event: Any, once: Any) -> str:
        slot = once.effect(terminal, claim_slot, event["box"])
        with once.commit(resource=slot) as tx:
            tx.execute(BOOK, (slot, event["box"]))
        return str(slot)

    return book


def commit_block_async(gate: Gate) -> Any:
    terminal = gate.downstream("terminal", honours_key="7d")

    @gate.handler("bookings", key="{id}")
    async def book(event: Any, once: Any) -> str:
        slot = await once.effect(terminal, claim_slot_async, event["box"])
        async with once.commit(resource=slot) as tx:
            await tx.execute(BOOK, (slot, event["box"]))
        return str(slot)

    return book


def writes_as_data(gate: Gate) -> Any:
    terminal = gate.downstream("terminal", honours_key="7d")

    @gate.handler("bookings", key="{id}")
    def book(event: Any, once: Any) -> str:
        slot = once.effect(terminal, claim_slot, event["box"])
        once.commit(writes=[(BOOK, (slot, event["box"]))])
        return str(slot)

    return book


def write_as_a_step(gate: Gate) -> Any:
    terminal = gate.downstream("terminal", honours_key="7d")

    @gate.handler("bookings", key="{id}")
    def book(event: Any, once: Any) -> str:
        once.write("booking", [(BOOK, (f"slot-{event['box']}", event["box"]))])
        return str(once.effect(terminal, claim_slot, event["box"]))

    return book


def same_database(gate: Gate) -> Any:
    @gate.handler("bookings", key="{id}", same_database=True)
    def book(event: Any, once: Any) -> str:
        slot = f"slot-{event['box']}"
        once.tx.execute(BOOK, (slot, event["box"]))
        return slot

    return book


def writes_option(gate: Gate) -> Any:
    terminal = gate.downstream("terminal", honours_key="7d")

    def rows(event: Any) -> list[tuple[str, tuple[str, str]]]:
        return [(BOOK, (f"slot-{event['box']}", event["box"]))]

    @gate.handler("bookings", key="{id}", writes=rows)
    def book(event: Any, once: Any) -> str:
        return str(once.effect(terminal, claim_slot, event["box"]))

    return book


WAYS = [commit_block, commit_block_async, writes_as_data, write_as_a_step, same_database, writes_option]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_write_through_the_gate_writes_once(
    gate: Gate, oncegate_chaos: Any, way: Any, kind: str
) -> None:
    chaos = oncegate_chaos(way(gate), EVENT, setup=TABLES, database=kind, **PLANS[kind])
    name = "claim_slot_async" if way is commit_block_async else "claim_slot"
    counted = {} if way is same_database else {name: 1}
    chaos.assert_rows(ROWS, ONE, **counted)


def tx_sqlite3(gate: Gate, shop: Shop) -> Any:
    @gate.handler("bookings", key="{id}")
    def book(event: Any, once: Any) -> None:
        connection = sqlite3.connect(shop.database.path)
        try:
            with connection:
                connection.execute(BOOK, (f"slot-{event['box']}", event["box"]))
                once.commit(tx=connection)
        finally:
            connection.close()

    return book


def tx_psycopg(gate: Gate, shop: Shop) -> Any:
    import psycopg

    @gate.handler("bookings", key="{id}")
    def book(event: Any, once: Any) -> None:
        with psycopg.connect(shop.database.url) as connection, connection.transaction():
            connection.execute(
                "INSERT INTO bookings VALUES (%s, %s)", (f"slot-{event['box']}", event["box"])
            )
            once.commit(tx=connection)

    return book


def tx_asyncpg(gate: Gate, shop: Shop) -> Any:
    asyncpg = pytest.importorskip("asyncpg")

    @gate.handler("bookings", key="{id}")
    async def book(event: Any, once: Any) -> None:
        connection = await asyncpg.connect(shop.database.url)
        try:
            async with connection.transaction():
                await connection.execute(
                    "INSERT INTO bookings VALUES ($1, $2)", f"slot-{event['box']}", event["box"]
                )
                await once.commit(tx=connection)
        finally:
            await connection.close()

    return book


def tx_sqlalchemy(gate: Gate, shop: Shop) -> Any:
    from sqlalchemy import NullPool, create_engine, text
    from sqlalchemy.orm import Session

    @gate.handler("bookings", key="{id}")
    def book(event: Any, once: Any) -> None:
        engine = create_engine(shop.database.sqlalchemy_url(), poolclass=NullPool)
        with Session(engine) as session, session.begin():
            values = {"slot": f"slot-{event['box']}", "box": event["box"]}
            session.execute(text("INSERT INTO bookings VALUES (:slot, :box)"), values)
            once.commit(tx=session)

    return book


def tx_sqlalchemy_async(gate: Gate, shop: Shop) -> Any:
    from sqlalchemy import NullPool, text
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    @gate.handler("bookings", key="{id}")
    async def book(event: Any, once: Any) -> None:
        engine = create_async_engine(shop.database.sqlalchemy_url("asyncpg"), poolclass=NullPool)
        async with AsyncSession(engine) as session, session.begin():
            values = {"slot": f"slot-{event['box']}", "box": event["box"]}
            await session.execute(text("INSERT INTO bookings VALUES (:slot, :box)"), values)
            await once.commit(tx=session)

    return book


JOINED = [
    (tx_sqlite3, "sqlite"),
    (tx_sqlalchemy, "sqlite"),
    (tx_psycopg, "postgres"),
    (tx_asyncpg, "postgres"),
    (tx_sqlalchemy, "postgres"),
    (tx_sqlalchemy_async, "postgres"),
]


@pytest.mark.parametrize(("way", "kind"), JOINED)
def test_a_joined_transaction_of_the_user_writes_once(
    gate: Gate, oncegate_chaos: Any, way: Any, kind: str
) -> None:
    shop = Shop()
    chaos = oncegate_chaos(way(gate, shop), EVENT, setup=[TABLES, shop.use], database=kind, **PLANS[kind])
    chaos.assert_rows(ROWS, ONE)


def outside_the_transaction(gate: Gate, shop: Shop) -> Any:
    """Commits its row by itself, and the outcome later."""

    @gate.handler("bookings", key="{id}")
    def book(event: Any, once: Any) -> str:
        connection = shop.database.connect()
        row = (f"slot-{event['box']}", event["box"])
        connection.execute(BOOK if shop.database.is_sqlite else BOOK.replace("?", "%s"), row)
        connection.close()
        return "done"

    return book


def past_the_gate(gate: Gate, shop: Shop) -> Any:
    """Calls the terminal by itself and writes its row as it should."""

    @gate.handler("bookings", key="{id}")
    def book(event: Any, once: Any) -> str:
        slot = claim_slot(event["box"])
        with once.commit() as tx:
            tx.execute(BOOK, (slot, event["box"]))
        return slot

    return book


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgres", marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
@pytest.mark.parametrize("way", [WAYS[0], *(pytest.param(way, marks=pytest.mark.soak) for way in WAYS[1:])])
def test_each_way_passes_every_plan(gate: Gate, oncegate_chaos: Any, way: Any, kind: str) -> None:
    chaos = oncegate_chaos(way(gate), EVENT, setup=TABLES, database=kind)
    chaos.assert_rows(ROWS, ONE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_committed_beside_the_outcome_is_caught(
    gate: Gate, oncegate_chaos: Any, kind: str
) -> None:
    shop = Shop()
    chaos = oncegate_chaos(
        outside_the_transaction(gate, shop), EVENT, setup=[TABLES, shop.use], database=kind, plans=0
    )
    with pytest.raises(AssertionError, match=r"finds .*MSKU1.*MSKU1.*, not") as caught:
        chaos.assert_rows(ROWS, ONE)
    assert "the worker crashes" in str(caught.value)
    assert str(caught.value).endswith("again: oncegate_chaos(…, plans=0)")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def test_a_call_past_the_gate_is_caught_although_the_row_is_right(
    gate: Gate, oncegate_chaos: Any, kind: str
) -> None:
    chaos = oncegate_chaos(past_the_gate(gate, Shop()), EVENT, setup=TABLES, database=kind, plans=0)
    with pytest.raises(AssertionError, match="claim_slot happened 2 times, not 1"):
        chaos.assert_effects(claim_slot=1)


def test_a_late_worker_that_writes_by_itself_is_caught(gate: Gate, oncegate_chaos: Any) -> None:
    """Two workers at once: a row that a stalled worker writes after its claim was taken over."""
    shop = Shop()
    terminal = gate.downstream("terminal", honours_key="7d")

    @gate.handler("bookings", key="{id}")
    def book(event: Any, once: Any) -> str:
        slot = once.effect(terminal, claim_slot, event["box"])
        with sqlite3.connect(shop.database.path) as connection:
            known = connection.execute("SELECT 1 FROM bookings").fetchone()
            if known is None:  # looks, and writes later: the window that a gate closes
                once.step("note", lambda: None)
                connection.execute(BOOK, (slot, event["box"]))
        connection.close()
        return str(slot)

    chaos = oncegate_chaos(book, EVENT, setup=[TABLES, shop.use], plans=0)
    with pytest.raises(AssertionError, match=r"MSKU1.*MSKU1"):
        chaos.assert_rows(ROWS, ONE)


def test_the_users_own_check_sees_the_database_after_each_trial(gate: Gate, oncegate_chaos: Any) -> None:
    seen: list[int] = []

    def check(database: Database) -> None:
        ((count,),) = database.rows("SELECT count(*) FROM bookings")
        seen.append(count)
        assert count == 2, f"{count} rows"

    chaos = oncegate_chaos(commit_block(gate), EVENT, setup=TABLES, check=check, plans=0)
    with pytest.raises(AssertionError, match="without any trouble: 1 rows"):
        chaos.assert_effects()
    assert seen == [1]


def test_a_handler_that_writes_is_told_to_give_its_tables(gate: Gate, oncegate_chaos: Any) -> None:
    """On the simulated ledger: said at once, not after a puzzling refusal."""
    with pytest.raises(ConfigError, match="give setup='CREATE TABLE"):
        oncegate_chaos(commit_block_async(gate), EVENT).assert_effects(claim_slot_async=1)


def test_what_cannot_be_played_is_said_before_it_runs(gate: Gate, oncegate_chaos: Any) -> None:
    @gate.handler("later", key="{id}", mode="accept")
    def later(event: Any, once: Any) -> None: ...

    with pytest.raises(ConfigError, match="lanes are not played on a real database"):
        oncegate_chaos(later, EVENT, setup=TABLES)
    with pytest.raises(ConfigError, match="choose sqlite or postgres"):
        oncegate_chaos(later, EVENT, database="oracle")
    with pytest.raises(ConfigError, match="assert_rows needs a real database"):
        oncegate_chaos(commit_block_async(gate), EVENT).assert_rows(ROWS, ONE)


def test_an_event_that_is_admitted_in_the_users_transaction_runs_once(
    gate: Gate, oncegate_chaos: Any
) -> None:
    """`deliver=` says how: reservation, rows and outcome are one commit of the user's."""
    import contextlib

    current: list[sqlite3.Connection] = []

    @gate.handler("bookings", key="{id}", same_database=True)
    def book(event: Any) -> None:
        current[-1].execute(BOOK, (f"slot-{event['box']}", event["box"]))

    def deliver(gate: Gate, event: Any, database: Database) -> Any:
        with contextlib.closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
            current.append(connection)
            connection.execute("BEGIN IMMEDIATE")
            admission = gate.admit_sync("bookings", event, tx=connection)
            connection.execute("COMMIT")
            return admission

    oncegate_chaos(book, EVENT, setup=TABLES, deliver=deliver, plans=5).assert_rows(ROWS, ONE)
