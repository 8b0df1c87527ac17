"""An event loop that ends while a batch waits for the server leaves nothing behind (I18)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from oncegate import Gate
from oncegate.gate.admission import Verdict
from oncegate.gate.surface import record as only_record
from oncegate.testing import run_forked
from oncegate.testing.waiting import wait_until
from tests.support.postgres_site import BLOCKED

OPEN = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
LOOPS = 3


def count(url: str, sql: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        ((found,),) = connection.execute(sql.encode()).fetchall()
        return int(found)


@contextmanager
def held_up(url: str) -> Iterator[None]:
    """Nobody gets an answer about a new key meanwhile."""
    with closing(psycopg.connect(url)) as connection:
        connection.execute("LOCK TABLE oncegate_entry IN EXCLUSIVE MODE")
        yield


@pytest.fixture
def gate(ledger_url: str) -> Iterator[Gate]:
    with closing(Gate(ledger_url)) as opened:
        opened.handler("plain", key="{id}")(only_record)
        asyncio.run(opened.admit("plain", {"id": "first"}))
        yield opened


def leave_in_the_middle(gate: Gate, url: str, number: int) -> None:
    """Runs a loop that ends once the server has been asked."""

    async def ask() -> None:
        task = asyncio.create_task(gate.admit("plain", {"id": f"left-{number}"}))
        await asyncio.to_thread(wait_until, lambda: count(url, BLOCKED) > number)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(ask())


def test_connections_of_loops_that_ended_are_closed(gate: Gate, ledger_url: str) -> None:
    """Given loops that ended one after the other while the server was held up; then no connection stays."""
    with held_up(ledger_url):
        for number in range(LOOPS):
            leave_in_the_middle(gate, ledger_url, number)

    verdict = asyncio.run(gate.admit("plain", {"id": "last"})).verdict

    assert verdict is Verdict.RUN
    wait_until(lambda: count(ledger_url, OPEN) == 1)


def test_gate_that_is_closed_closes_what_its_last_loop_left(gate: Gate, ledger_url: str) -> None:
    with held_up(ledger_url):
        leave_in_the_middle(gate, ledger_url, 0)

    gate.close()

    wait_until(lambda: count(ledger_url, OPEN) == 0)


def test_process_can_be_forked_after_a_loop_that_ended(gate: Gate, ledger_url: str) -> None:
    """Given a loop that ended in the middle, and a fork; then the child can use its gate."""
    with held_up(ledger_url):
        leave_in_the_middle(gate, ledger_url, 0)

    def use() -> bool:
        return asyncio.run(gate.admit("plain", {"id": "child"})).verdict is Verdict.RUN

    assert run_forked(use) == (0, True)
