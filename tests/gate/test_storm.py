"""Poisoned and locking events among hundreds of innocent ones, which none of them touches (I11, I25)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncegate import AsyncOnce
from oncegate.errors import StoreError, StoreRejected
from oncegate.gate.admission import Verdict
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.support.batched_events import BOOK, COUNT, NUMBER, Shop, shop_maker

pytestmark = pytest.mark.slow

INNOCENT = 500
CODES = (
    "08P01",
    "08006",
    "40001",
    "40P01",
    "53100",
    "53300",
    "54001",
    "55P03",
    "55006",
    "57014",
    "57P01",
    "XX000",
)
POISON = "INSERT INTO poison (code) VALUES (?)"
LATE = "INSERT INTO late (code) VALUES (?)"
STEP = "INSERT INTO bookings (slot) VALUES (?)"
HIT = "UPDATE counter SET n = n + 1 WHERE name = 'locked'"
ON_POSTGRES = """
CREATE TABLE poison (code text); CREATE TABLE late (code text);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'poisoned' USING ERRCODE = NEW.code; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON poison FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION refuse();
INSERT INTO counter VALUES ('locked', 0), ('lockers', 0)
"""
ON_SQLITE = (
    "CREATE TABLE poison (code text)",
    "CREATE TRIGGER refuse BEFORE INSERT ON poison BEGIN SELECT RAISE(ROLLBACK, 'poisoned'); END",
    "CREATE TABLE late (code text)",
    "CREATE TRIGGER refuse_late AFTER INSERT ON late BEGIN SELECT RAISE(FAIL, 'poisoned'); END",
)


class Storm:
    """A shop with innocent surfaces of every kind; what was called outside is counted."""

    def __init__(self, shop: Shop) -> None:
        self.shop, gate = shop, shop.gate
        self.calls: Counter[str] = Counter()
        prepare = [ON_POSTGRES] if shop.store == "postgres" else ON_SQLITE
        for sql in prepare:
            shop.rows(sql)

        @gate.handler("at most once", key="{id}")
        async def charge(event: dict[str, str]) -> str:
            self.calls[event["id"]] += 1
            return "charged"

        @gate.handler("step", key="{id}")
        async def step(event: dict[str, str], once: AsyncOnce) -> None:
            await once.write("book", [(STEP, (event["id"],))])

    async def innocent(self, number: int) -> Verdict:
        """One of many events that do nothing wrong."""
        name, kind = f"I-{number}", number % 5
        gate, statements = self.shop.gate, self.shop.statements
        if kind in (0, 1):
            surface = ("at most once", "step")[kind]
        else:
            surface = "shop in tasks"
            two = [(COUNT, ("invoices",)), (NUMBER, (name,))]
            statements[name] = ([], [(BOOK, (name,))], two)[kind - 2]
        return (await gate.admit(surface, {"id": name})).verdict

    def poisoned(self) -> list[Coroutine[Any, Any, Any]]:
        """Events whose own statement is refused, at once or at the end, alone or as the second of two."""
        found: list[Coroutine[Any, Any, Any]] = []
        for code in CODES:
            for shape in ([(POISON, (code,))], [(COUNT, ("stock",)), (POISON, (code,))], [(LATE, (code,))]):
                name = f"P-{len(found)}"
                self.shop.statements[name] = shape
                found.append(self.shop.gate.admit("shop in tasks", {"id": name}))
        return found

    def locking(self, count: int) -> list[asyncio.Task[Any]]:
        """Events that want the row which somebody holds, alone or as the second of two statements."""
        tasks = []
        for number in range(count):
            shape = [(HIT, ())] if number % 2 else [(COUNT, ("lockers",)), (HIT, ())]
            self.shop.statements[f"L-{number}"] = shape
            tasks.append(asyncio.create_task(self.shop.gate.admit("shop in tasks", {"id": f"L-{number}"})))
        return tasks

    def judge(self) -> None:
        """Everything innocent is there once; nothing ended as unknown."""
        rows, quarter = self.shop.rows, INNOCENT // 5
        assert rows("SELECT count(*) FROM bookings") == [(2 * quarter,)]
        assert len(rows("SELECT DISTINCT number FROM invoices")) == quarter
        assert self.calls == Counter({f"I-{5 * n}": 1 for n in range(quarter)})
        assert rows("SELECT count(*) FROM oncegate_entries WHERE state IN ('unknown', 'in_flight')") == [
            (0,)
        ]
        assert rows("SELECT count(*) FROM poison") == rows("SELECT count(*) FROM late") == [(0,)]


@pytest.fixture(params=["sqlite", "postgres"])
def storm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storm]:
    shop = shop_maker(request.param, tmp_path, lambda: request.getfixturevalue("ledger_url"))
    yield Storm(shop)
    shop.close()


@contextlib.asynccontextmanager
async def held_row(shop: Shop) -> AsyncIterator[None]:
    """Somebody's transaction has one row, and stays open."""
    if shop.store == "sqlite":  # has one writer: nobody can hold a row and let others write
        yield
        return
    async with await psycopg.AsyncConnection.connect(shop.url) as other:
        await other.execute(HIT.encode())
        yield


def test_innocent_events_are_not_touched_by_poison_or_locks(storm: Storm) -> None:
    """500 of all kinds end while the row is still held; the poisoned alone are refused."""

    async def main() -> list[Any]:
        async with held_row(storm.shop):
            lockers = storm.locking(6) if storm.shop.store == "postgres" else []
            innocent = [storm.innocent(number) for number in range(INNOCENT)]
            poisoned = storm.poisoned()
            async with asyncio.timeout(DEADLINE_SECONDS):
                answers = await asyncio.gather(*innocent, *poisoned, return_exceptions=True)
            assert not any(task.done() for task in lockers)
        ended = await asyncio.gather(*lockers)
        assert all(one.verdict is Verdict.RUN for one in ended)
        return answers

    answers = asyncio.run(main())

    assert Counter(answers[:INNOCENT]) == Counter({Verdict.RUN: INNOCENT})
    assert all(isinstance(answer, StoreError) for answer in answers[INNOCENT:])
    refused = [answer for answer in answers[INNOCENT:] if isinstance(answer, StoreRejected)]
    assert len(refused) == len(answers) - INNOCENT
    storm.judge()
