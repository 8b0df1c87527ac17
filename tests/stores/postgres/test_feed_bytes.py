"""Pages of the feed are bounded in bytes by the server: what is too much is neither sent nor read."""

from __future__ import annotations

import random
import re
from contextlib import closing

import psycopg

from oncegate.store.feed import EventToPublish, FeedWanted
from oncegate.stores.postgres import feed
from oncegate.stores.postgres.store import PostgresStore

EVENTS = 30
BODY_BYTES = 200_000
BLOCK_BYTES = 8_192


def test_bodies_beyond_a_page_are_not_read_from_the_disk(ledger_url: str) -> None:
    """Their lengths are enough to tell where the page ends."""
    body = random.Random(7).randbytes(BODY_BYTES)
    with closing(PostgresStore(ledger_url).connect()) as session:
        with session.unit():
            session.publish([EventToPublish("acme", str(n), "k", body, b"f", 0) for n in range(EVENTS)])
        with session.unit():
            page = session.read_feed(FeedWanted("acme", "reader", 0, EVENTS, BODY_BYTES * 3))
    with psycopg.connect(ledger_url) as connection:
        ((tenant,),) = connection.execute("SELECT tenant FROM oncegate_feed_tenant").fetchall()
        plan = connection.execute(
            "EXPLAIN (ANALYZE, BUFFERS) " + feed._AFTER, (tenant, 0, EVENTS, BODY_BYTES * 3)
        ).fetchall()

    assert [event.position for event in page.events] == [1, 2, 3]
    buffers = next(line for (line,) in plan if "Buffers:" in line)  # of the whole, without planning it
    assert sum(map(int, re.findall(r"=(\d+)", buffers))) * BLOCK_BYTES < BODY_BYTES, plan
