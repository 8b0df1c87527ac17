"""The same two transactions, or one, by hand on asyncpg: what a careful Python program would send.

The same statements as pgbench's scripts and none of the gate's promises. It says how much of a distance to
pgbench is the language's.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Iterable
from time import perf_counter
from typing import Any, Final

from oncegate.bench.samples import Sample

SCRIPTS: Final = ("two transactions", "one transaction")
_RESERVE: Final = (
    "INSERT INTO bench_claim (key, state, at) VALUES ($1, 1, 0) ON CONFLICT (key) DO NOTHING RETURNING key"
)
_EVENT: Final = "INSERT INTO bench_event (key, body) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_SETTLE: Final = "UPDATE bench_claim SET state = 2 WHERE key = $1 AND state = 1"
_OUTCOME: Final = "INSERT INTO bench_outcome (key, body) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_LOG: Final = "INSERT INTO bench_log (key, state, at) VALUES ($1, 2, 0)"
_BOOK: Final = "INSERT INTO booking (equipment, slot) VALUES ($1, $2)"


def is_available() -> bool:
    """Whether asyncpg is installed."""
    return importlib.util.find_spec("asyncpg") is not None


async def run_by_hand(url: str, script: str, events: Iterable[dict[str, Any]], tasks: int) -> Sample:
    """Runs events from a number of tasks, each with a connection of its own."""
    import asyncpg  # type: ignore[import-untyped]

    work = _in_two if script == "two transactions" else _in_one
    waiting, latencies = iter(events), list[float]()

    async def worker(connection: Any) -> None:
        for event in waiting:
            begun = perf_counter()
            await work(connection, event)
            latencies.append((perf_counter() - begun) * 1000)

    connections = [await asyncpg.connect(url) for _ in range(tasks)]
    try:
        begun = perf_counter()
        await asyncio.gather(*(worker(connection) for connection in connections))
        return Sample(len(latencies), perf_counter() - begun, tuple(latencies))
    finally:
        for connection in connections:
            await connection.close()


async def _in_two(connection: Any, event: dict[str, Any]) -> None:
    key = f"{event['notificationId']}:{event['equipment_number']}"
    async with connection.transaction():
        await _reserve(connection, key, event)
    async with connection.transaction():
        await _settle(connection, key, event)


async def _in_one(connection: Any, event: dict[str, Any]) -> None:
    key = f"{event['notificationId']}:{event['equipment_number']}"
    async with connection.transaction():
        await _reserve(connection, key, event)
        await _settle(connection, key, event)


async def _reserve(connection: Any, key: str, event: dict[str, Any]) -> None:
    await connection.execute(_RESERVE, key)
    await connection.execute(_EVENT, key, json.dumps(event))


async def _settle(connection: Any, key: str, event: dict[str, Any]) -> None:
    await connection.execute(_SETTLE, key)
    await connection.execute(_OUTCOME, key, '{"slot": "0123456789"}')
    await connection.execute(_LOG, key)
    await connection.execute(_BOOK, event["equipment_number"], "0123456789")
