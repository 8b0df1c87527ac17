"""A row that somebody's transaction holds stops whoever wants that row, and nobody else (I11, I25)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from oncegate import Gate, Once
from oncegate.feed import Feed
from oncegate.gate.admission import Verdict
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.support.postgres_site import BLOCKED

HIT = "UPDATE stock SET n = n + 1 WHERE name = ?"
LOCKERS = 6  # more than there are writers


@pytest.fixture
def gate(ledger_url: str) -> Iterator[Gate]:
    with psycopg.connect(ledger_url) as other:
        other.execute("CREATE TABLE stock (name text PRIMARY KEY, n int NOT NULL)")
        other.execute("INSERT INTO stock VALUES ('held', 0), ('free', 0)")
    with Gate(ledger_url) as opened:

        @opened.handler("hit", key="{id}")
        def hit(event: dict[str, str], once: Once) -> None:
            once.commit(writes=[(HIT, (event["row"],))])

        @opened.handler("plain", key="{id}")
        def plain(event: dict[str, str]) -> str:
            return event["id"]

        yield opened


@contextlib.contextmanager
def holding(url: str, sql: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A transaction of somebody else's that stays open."""
    with psycopg.connect(url) as other:
        other.execute(sql.encode())
        yield other


def until_blocked(url: str, count: int) -> None:
    with psycopg.connect(url, autocommit=True) as watcher:
        wait_until(
            lambda: watcher.execute(BLOCKED.encode()).fetchall() >= [(count,)], what="waits for the lock"
        )


def test_threads_go_on_while_others_wait_for_a_row(gate: Gate, ledger_url: str) -> None:
    """More events than there are writers want one row; events without writes, and other rows, go on."""

    def admit(surface: str, name: str, row: str = "") -> Verdict:
        return gate.admit_sync(surface, {"id": name, "row": row}).verdict

    with ThreadPoolExecutor(LOCKERS + 4) as threads:
        with holding(ledger_url, HIT.replace("?", "'held'")):
            stopped = [threads.submit(admit, "hit", f"L-{n}", "held") for n in range(LOCKERS)]
            until_blocked(ledger_url, LOCKERS)
            kinds = [("plain", "P", ""), ("hit", "F", "free")] * 10
            going = [threads.submit(admit, s, f"{p}-{n}", r) for n, (s, p, r) in enumerate(kinds)]
            assert {one.result(DEADLINE_SECONDS) for one in going} == {Verdict.RUN}
            assert not any(one.done() for one in stopped)
        assert {one.result(DEADLINE_SECONDS) for one in stopped} == {Verdict.RUN}


def test_publishing_under_other_keys_goes_on_while_a_transaction_has_published(
    gate: Gate, ledger_url: str
) -> None:
    """The transaction is open and holds its key; the same key waits for it, others do not."""
    feed = Feed(gate)

    async def main() -> None:
        async def publish(number: int, key: str) -> object:
            return await feed.publish(event_id=f"E-{number}", key=key, data={})

        with psycopg.connect(ledger_url) as other:
            other.execute("SELECT 1")
            feed.publish_sync(event_id="E-0", key="held", data={}, tx=other)
            stopped = [asyncio.create_task(publish(n, "held")) for n in range(1, 4)]
            async with asyncio.timeout(DEADLINE_SECONDS):
                await asyncio.gather(*(publish(n, f"free-{n % 5}") for n in range(10, 60)))
            assert not any(task.done() for task in stopped)
            other.commit()
        await asyncio.gather(*stopped)

    asyncio.run(main())
    with psycopg.connect(ledger_url) as other:
        assert other.execute("SELECT count(*) FROM oncegate_feed").fetchone() == (54,)
