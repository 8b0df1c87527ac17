"""Many events through one PostgreSQL ledger: it stays as large and as quick as it was.

The long one takes a million; ONCEGATE_SOAK_EVENTS says otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg
import pytest

from oncegate import AsyncOnce, Gate
from oncegate.bench.samples import Sample
from oncegate.bench.workload import SURFACE, event_blocks, run_gate
from oncegate.maintenance.pruner import Pruner
from oncegate.testing import ManualClock
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.waiting import wait_until

pytestmark = pytest.mark.slow

EVENTS: Final = int(os.environ.get("ONCEGATE_SOAK_EVENTS", "1000000"))
BLOCK: Final = EVENTS // 20
SETTLED_IN: Final = 4  # blocks after which everything has its size
DAYS: Final = 16  # between two blocks; keys are kept for 14
SIZES: Final = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class
WHERE relkind = 'r' AND relname ~ '^oncegate_(entry|open|payload|outcome|step)'
"""
HOT: Final = """
SELECT sum(n_tup_hot_upd)::float / nullif(sum(n_tup_upd), 0)
FROM pg_stat_user_tables WHERE relname = 'oncegate_entry'
"""
HOT_SHARE_MIN: Final = 0.85  # of a page's entries the last few may find it full


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server with the settings that it comes with, on a disk. Short runs are vacuumed as much oftener."""
    naptime = max(1, 60 * EVENTS // 1_000_000)
    with PostgresServer({"autovacuum_naptime": f"{naptime}s"}) as started:
        yield started


def ask(url: str, sql: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        (found,) = connection.execute(sql.encode()).fetchone() or (None,)
        return found


def open_gate(url: str, clock: ManualClock) -> Gate:
    gate = Gate(url, clock=clock, replay_cache_max=1)

    @gate.handler(SURFACE, key="{notificationId}", retention="14d")
    async def book(event: dict[str, Any], once: AsyncOnce) -> dict[str, str]:
        return {"slot": event["equipment_number"]}

    return gate


def hot_share(url: str) -> float:
    """The share of updates that stayed on their page; the server tells when its processes have ended."""
    return float(ask(url, HOT) or 0.0)


def test_entries_of_one_batch_are_settled_on_their_own_pages(ledger_url: str) -> None:
    # When many events are reserved and settled together
    with open_gate(ledger_url, ManualClock()) as gate:
        asyncio.run(run_gate(gate, event_blocks(2_000)(), 256))
    # Then nearly all of the settled rows have found room beside their first version
    wait_until(lambda: hot_share(ledger_url) > 0, what="the server's count of updates")
    assert hot_share(ledger_url) >= HOT_SHARE_MIN


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_events_leave_no_bloat(
    server: PostgresServer, record_property: Callable[[str, object], None]
) -> None:
    """With keys forgotten as fast as they come, tables stop growing, and updates stay on their pages."""
    # Given a ledger whose keys go after 14 days
    url, clock = server.new_database(), ManualClock()
    blocks, sizes, samples = event_blocks(BLOCK), [], list[Sample]()
    with open_gate(url, clock) as gate:
        pruner = Pruner(gate)
        # When a million events come over some months, and the pruner does its work in between
        for number in range(EVENTS // BLOCK):
            samples.append(asyncio.run(run_gate(gate, blocks(), 256)))
            clock.advance(DAYS * 86_400.0)
            while pruner.run_once().entries:
                pass
            gate.engine.store.make_room(clock.wall_ms())
            sizes.append(int(ask(url, SIZES)))
            p99 = samples[-1].percentile(0.99)
            record_property(f"block_{number}", f"{sizes[-1] / 2**20:.0f} MiB, p99 {p99:.1f} ms")
    # Then the second half is no larger and no slower than the first; sizes go up and down with the vacuum
    record_property("hot_share", round(hot_share(url), 3))
    assert hot_share(url) >= HOT_SHARE_MIN
    half = len(sizes) // 2
    assert max(sizes[half:]) <= 1.5 * max(sizes[SETTLED_IN:half]), sizes
    early, late = (
        min(sample.percentile(0.99) for sample in part)
        for part in (samples[SETTLED_IN:half], samples[half:])
    )
    assert late <= 1.5 * early, (early, late)
