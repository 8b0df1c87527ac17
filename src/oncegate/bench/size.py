"""How much disk a settled key takes, payload and outcome left out."""

from __future__ import annotations

import asyncio
import sqlite3
from itertools import islice
from pathlib import Path
from typing import Any, Final

from oncegate.bench.workload import event_blocks, open_gate, prepare_business_table, run_gate

CONCURRENCY: Final = 256
BULKY: Final = ("oncegate_payload", "oncegate_outcome", "booking")


def measure_size(folder: Path, keys: int) -> dict[str, Any]:
    """Settles `keys` keys on a ledger of its own and weighs what is left without the bulky tables."""
    path = folder / "size.db"
    asyncio.run(_fill(path, keys))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        everything = bytes_used(connection)
        for table in BULKY:
            connection.execute(f"DROP TABLE {table}")
        kept = bytes_used(connection)
    finally:
        connection.close()
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    return {
        "keys": keys,
        "bytes_per_key": round(kept / keys, 1),
        "bytes_per_key_with_payload_and_outcome": round(everything / keys, 1),
    }


async def _fill(path: Path, keys: int) -> None:
    gate = open_gate(f"sqlite:///{path}")
    try:
        prepare_business_table(gate)
        blocks = event_blocks(10_000)
        left = keys
        while left > 0:
            block = list(islice(blocks(), left))
            await run_gate(gate, block, CONCURRENCY)
            left -= len(block)
    finally:
        gate.close()


def bytes_used(connection: sqlite3.Connection) -> int:
    """What a SQLite file holds, without its free pages."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * size)
