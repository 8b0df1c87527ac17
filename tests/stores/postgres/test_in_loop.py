"""Tasks on PostgreSQL: their work gives way to the event loop, and nothing is left behind (I1, I5)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from oncegate import AsyncOnce, Gate
from oncegate.errors import StoreError
from oncegate.gate.admission import Verdict
from oncegate.stores.postgres.limits import LimitedConnection
from oncegate.testing.waiting import wait_until

EVENT = {"id": "E-1"}
BOOK = "INSERT INTO booking VALUES (?)"


@pytest.fixture
def url(ledger_url: str) -> str:
    run_sql(ledger_url, "CREATE TABLE booking (ref text PRIMARY KEY)")
    return ledger_url


def run_sql(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def writing_gate(url: str) -> Iterator[Gate]:
    """A gate whose handler hands its booking over as data."""
    with Gate(url) as gate:

        @gate.handler("bookings", key="{id}")
        async def book(event: dict[str, str], once: AsyncOnce) -> str:
            once.commit(writes=[(BOOK, (event["id"],))])
            return event["id"]

        yield gate


@contextlib.asynccontextmanager
async def locked(url: str, table: str = "oncegate_entry") -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Nobody can write the table meanwhile."""
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE".encode())
        yield other


async def until_blocked(url: str) -> None:
    """Waits until the gate waits for a lock; other tasks have their turns, or nobody would see it."""
    sql = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND application_name = 'oncegate'"
    )

    def watch() -> None:
        with psycopg.connect(url, autocommit=True) as watcher:
            wait_until(lambda: watcher.execute(sql).fetchone(), what="a wait for the lock")

    await asyncio.to_thread(watch)


def test_many_tasks_at_once_run_each_event_once(url: str) -> None:
    """Half of them are repeats of the other half."""
    with writing_gate(url) as gate:

        async def main() -> list[Verdict]:
            events = [{"id": f"E-{number}"} for number in range(60)] * 2
            answers = await asyncio.gather(
                *(gate.admit("bookings", event) for event in events), return_exceptions=True
            )
            return [answer.verdict for answer in answers if not isinstance(answer, BaseException)]

        verdicts = asyncio.run(main())
    assert verdicts.count(Verdict.RUN) == 60
    assert run_sql(url, "SELECT count(*), count(DISTINCT ref) FROM booking") == [(60, 60)]


def test_loop_goes_on_while_the_server_is_slow(url: str) -> None:
    """A commit that waits for a lock on the server holds up nothing else in the loop."""
    with writing_gate(url) as gate:

        async def main() -> Verdict:
            async with locked(url) as other:
                waiting = asyncio.create_task(gate.admit("bookings", EVENT))
                await until_blocked(url)
                assert not waiting.done()
                await other.rollback()
                return (await waiting).verdict

        assert asyncio.run(main()) is Verdict.RUN


def test_cancelled_task_undoes_its_transaction(url: str) -> None:
    """Cancelled in the middle of a statement: it ends first, then all is undone, and the gate goes on."""
    with Gate(url) as gate:

        @gate.handler("bookings", key="{id}", same_database=True)
        async def book(event: dict[str, str], once: AsyncOnce) -> str:
            await once.tx.execute(BOOK, (event["id"],))
            return "booked"

        async def main() -> Verdict:
            await gate.admit("bookings", {"id": "before"})
            async with locked(url, "booking") as other:
                waiting = asyncio.create_task(gate.admit("bookings", EVENT))
                await until_blocked(url)
                waiting.cancel()
                await asyncio.sleep(0)
                await other.rollback()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            return (await gate.admit("bookings", {"id": "after"})).verdict

        assert asyncio.run(main()) is Verdict.RUN
    assert run_sql(url, "SELECT ref FROM booking ORDER BY ref") == [("after",), ("before",)]


def test_loop_that_ends_in_the_middle_leaves_nothing_open(url: str) -> None:
    """A loop is closed over a commit under way: no hang, and the next loop finds out what became of it."""
    with writing_gate(url) as gate, psycopg.connect(url) as other:
        other.execute("LOCK TABLE oncegate_entry IN EXCLUSIVE MODE")

        async def begin() -> None:
            waiting = asyncio.create_task(gate.admit("bookings", EVENT))
            await until_blocked(url)
            waiting.cancel()

        asyncio.run(begin())
        other.rollback()

        async def again() -> Verdict:
            return (await gate.admit("bookings", {"id": "E-2"})).verdict

        assert asyncio.run(again()) is Verdict.RUN


def test_silent_server_is_given_up_in_a_loop(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task does not wait for a server without an end; what is told is an error of the store's."""
    with writing_gate(url) as gate:

        async def main() -> BaseException | None:
            await gate.admit("bookings", {"id": "before"})
            monkeypatch.setattr(LimitedConnection, "answer_wait_ms", 150)
            async with locked(url):
                with pytest.raises(StoreError) as told:
                    await gate.admit("bookings", EVENT)
            return told.value

        assert asyncio.run(main()) is not None


def test_server_that_went_away_is_reached_again_without_holding_the_loop(url: str) -> None:
    """Every connection was ended meanwhile: new ones are opened beside the loop, and nobody notices."""
    with writing_gate(url) as gate:

        async def main() -> Verdict:
            await gate.admit("bookings", {"id": "before"})
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
                await other.execute(
                    "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND application_name = 'oncegate'"
                )
            return (await gate.admit("bookings", EVENT)).verdict

        assert asyncio.run(main()) is Verdict.RUN


def rows_read(url: str) -> int:
    """How many rows of entries were read one after the other, since ever."""
    sql = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = 'oncegate_entry'::regclass"
    ((read,),) = run_sql(url, sql)
    return int(read)


def test_settling_never_reads_the_whole_ledger(url: str) -> None:
    """The plans are made while the ledger is empty and must be right for a full one."""
    before = rows_read(url)
    with writing_gate(url) as gate:

        async def main() -> None:
            for turn in range(12):  # more than it takes the server to keep a plan
                events = [{"id": f"E-{turn}-{number}"} for number in range(1 + 10 * (turn % 2))]
                await asyncio.gather(*(gate.admit("bookings", event) for event in events))

        asyncio.run(main())
    others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    wait_until(lambda: not run_sql(url, others), what="the end of the gate's connections")
    assert rows_read(url) == before
