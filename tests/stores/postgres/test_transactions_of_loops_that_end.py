"""A handler's own transaction whose loop ends in the middle is undone, and its place is free (I18)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from oncegate import AsyncOnce, Gate, Once
from oncegate.commit import group_commit
from oncegate.errors import StoreBusy
from oncegate.gate.admission import Verdict
from oncegate.testing import run_forked
from oncegate.testing.waiting import wait_until
from tests.support.postgres_site import BLOCKED

BOOK = "INSERT INTO booking VALUES (?)"
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
OPEN = f"SELECT count(*) {OTHERS}"
LEFT = f"{OPEN} AND xact_start IS NOT NULL"
Declare = Callable[[Gate], None]


def run_sql(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def count(url: str, sql: str) -> int:
    ((found,),) = run_sql(url, sql)
    return int(found)


def in_one_transaction(gate: Gate) -> None:
    @gate.handler("bookings", key="{id}", same_database=True)
    async def book(event: dict[str, str], once: AsyncOnce) -> None:
        await once.tx.execute(BOOK, (event["id"],))


def in_a_block(gate: Gate) -> None:
    @gate.handler("bookings", key="{id}")
    async def book(event: dict[str, str], once: AsyncOnce) -> None:
        async with once.commit() as tx:
            await tx.execute(BOOK, (event["id"],))


@pytest.fixture
def url(ledger_url: str) -> str:
    run_sql(ledger_url, "CREATE TABLE booking (ref text)")
    return ledger_url


@pytest.fixture
def one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """One handler has a transaction at a time; another gives up soon."""
    monkeypatch.setattr(group_commit, "TRANSACTIONS_MAX", 1)
    monkeypatch.setattr(group_commit, "TURN_WAIT_SECONDS", 0.2)


@contextmanager
def opened(url: str, declare: Declare) -> Iterator[Gate]:
    """A gate that has booked once."""
    with closing(Gate(url)) as gate:
        declare(gate)
        assert book(gate, "first") is Verdict.RUN
        yield gate


def book(gate: Gate, ref: str) -> Verdict:
    return asyncio.run(gate.admit("bookings", {"id": ref})).verdict


@contextmanager
def held_up(url: str) -> Iterator[None]:
    """Nobody gets an answer about a booking meanwhile."""
    with closing(psycopg.connect(url)) as connection:
        connection.execute("LOCK TABLE booking IN EXCLUSIVE MODE")
        yield


def leave_in_the_middle(gate: Gate, url: str) -> None:
    """Runs a loop that ends while the server is asked, and does not wait until all is undone."""

    async def ask() -> None:
        task = asyncio.create_task(gate.admit("bookings", {"id": "left"}))
        await asyncio.to_thread(wait_until, lambda: count(url, BLOCKED))
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)

    asyncio.run(ask())


@pytest.mark.usefixtures("one_place")
@pytest.mark.parametrize("declare", [in_one_transaction, in_a_block])
def test_place_and_connection_are_free_for_the_next_loop(url: str, declare: Declare) -> None:
    """Given a loop that ended in the middle of the only transaction; then the next loop has its own."""
    with opened(url, declare) as gate:
        with held_up(url):
            leave_in_the_middle(gate, url)

        assert book(gate, "next") is Verdict.RUN
        wait_until(lambda: count(url, LEFT) == 0, what="the end of the transaction that was left")
        assert run_sql(url, "SELECT ref FROM booking ORDER BY ref") == [("first",), ("next",)]


def test_gate_that_is_closed_closes_what_its_last_loop_left(url: str) -> None:
    with opened(url, in_one_transaction) as gate, held_up(url):
        leave_in_the_middle(gate, url)
    wait_until(lambda: count(url, OPEN) == 0, what="the end of the gate's connections")


def test_forked_process_has_no_part_in_what_a_loop_left(url: str) -> None:
    """Given a loop that ended in the middle, and a fork; then both book, and nothing is open."""
    with opened(url, in_one_transaction) as gate:
        with held_up(url):
            leave_in_the_middle(gate, url)

        assert run_forked(lambda: book(gate, "child") is Verdict.RUN) == (0, True)
        assert book(gate, "parent") is Verdict.RUN
        wait_until(lambda: count(url, LEFT) == 0, what="the end of the transaction that was left")


@pytest.mark.usefixtures("one_place")
def test_thread_that_still_uses_its_transaction_is_not_disturbed(url: str) -> None:
    """Given a plain handler inside a statement whose loop has ended; then it gets its answer first."""
    answers: list[object] = []

    def declare(gate: Gate) -> None:
        @gate.handler("bookings", key="{id}", same_database=True)
        def book(event: dict[str, str], once: Once) -> None:
            answers.append(once.tx.execute(BOOK, (event["id"],)))

    with opened(url, declare) as gate:
        with held_up(url):
            leave_in_the_middle(gate, url)
            with pytest.raises(StoreBusy):
                book(gate, "too early")
        wait_until(lambda: len(answers) == 2, what="the answer to the thread's statement")

        wait_until(lambda: booked(gate, "next"), what="the place of the thread")
    assert run_sql(url, "SELECT ref FROM booking ORDER BY ref") == [("first",), ("next",)]


def booked(gate: Gate, ref: str) -> bool:
    try:
        return book(gate, ref) is Verdict.RUN
    except StoreBusy:
        return False
