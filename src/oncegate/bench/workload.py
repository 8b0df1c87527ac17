"""The work that is measured: an event, its key, a no-op effect, one business row, an outcome.

Every subject does the same: record the key durably, act, record outcome and business row durably.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from oncegate.bench.samples import Sample
from oncegate.gate.once import AsyncOnce, Once
from oncegate.wiring import Gate

SURFACE: Final = "bench"
KEY: Final = "{notificationId}:{equipment_number}"
INSERT_BOOKING: Final = "INSERT INTO booking (equipment, slot) VALUES (?, ?)"
CREATE_BOOKING: Final = (
    "CREATE TABLE IF NOT EXISTS booking (id INTEGER PRIMARY KEY, equipment TEXT, slot TEXT)"
)

_FILLER: Final = "x" * 330  # brings an event to about half a kilobyte


def make_event(number: int, prefix: str = "N") -> dict[str, Any]:
    """An event of about 500 bytes, as a terminal's notification would be."""
    return {
        "notificationId": f"{prefix}-{number:09d}",
        "equipment_number": f"MSKU{number % 10_000_000:07d}",
        "window": "2026-06-01T06:00:00Z/PT1H",
        "terminal": {"code": "ECT-DELTA", "berth": number % 40},
        "remarks": _FILLER,
    }


async def claim_slot(equipment: str, idempotency_key: str) -> str:
    """The counted no-op: what is measured is the gate."""
    return idempotency_key[:16]


def open_gate(url: str | None = None, mode: str = "data", **options: Any) -> Gate:
    """A gate with the measured handler: one effect, one business row, by one of the three ways."""
    gate = Gate(url, **options)
    MODES[mode](gate)
    return gate


def _write_as_data(gate: Gate) -> None:
    """The business row is handed over as data and joins the batch."""
    terminal = gate.downstream("terminal", honours_key="7d")

    @gate.handler(SURFACE, key=KEY)
    async def book(event: dict[str, Any], once: AsyncOnce) -> dict[str, str]:
        slot = await once.effect(terminal, claim_slot, event["equipment_number"], name="claim_slot")
        once.commit(resource=slot, writes=[(INSERT_BOOKING, (event["equipment_number"], slot))])
        return {"slot": slot}


def _write_from_a_thread(gate: Gate) -> None:
    """The same from plain functions, for a caller that is a thread."""
    terminal = gate.downstream("terminal", honours_key="7d")

    def claim_slot(equipment: str, idempotency_key: str) -> str:
        return idempotency_key[:16]

    @gate.handler(SURFACE, key=KEY)
    def book(event: dict[str, Any], once: Once) -> dict[str, str]:
        slot = once.effect(terminal, claim_slot, event["equipment_number"], name="claim_slot")
        once.commit(resource=slot, writes=[(INSERT_BOOKING, (event["equipment_number"], slot))])
        return {"slot": slot}


def _write_in_block(gate: Gate) -> None:
    """The handler has a transaction of its own for the business row."""
    terminal = gate.downstream("terminal", honours_key="7d")

    @gate.handler(SURFACE, key=KEY)
    async def book(event: dict[str, Any], once: AsyncOnce) -> dict[str, str]:
        slot = await once.effect(terminal, claim_slot, event["equipment_number"], name="claim_slot")
        async with once.commit(resource=slot, outcome={"slot": slot}) as tx:
            await tx.execute(INSERT_BOOKING, (event["equipment_number"], slot))
        return {"slot": slot}


def _write_in_same_database(gate: Gate) -> None:
    """Reservation, business row and outcome are one transaction."""

    @gate.handler(SURFACE, key=KEY, same_database=True)
    async def book(event: dict[str, Any], once: AsyncOnce) -> dict[str, str]:
        await once.tx.execute(INSERT_BOOKING, (event["equipment_number"], "none"))
        return {"slot": "none"}


MODES: Final = {
    "data": _write_as_data,
    "thread": _write_from_a_thread,
    "block": _write_in_block,
    "same database": _write_in_same_database,
}


def prepare_business_table(gate: Gate) -> None:
    """Creates the user's own table beside the ledger."""
    session = gate.engine.store.connect()
    try:
        with session.unit():
            session.execute(CREATE_BOOKING, ())
    finally:
        session.close()


async def run_gate(gate: Gate, events: Iterable[dict[str, Any]], concurrency: int) -> Sample:
    """Admits events from a number of tasks at once."""
    return await _run_tasks(partial(gate.admit, SURFACE), events, concurrency)


def run_gate_in_thread(gate: Gate, events: list[dict[str, Any]]) -> Sample:
    """Admits events one after the other from the calling thread."""
    latencies: list[float] = []
    begun = perf_counter()
    for event in events:
        started = perf_counter()
        gate.admit_sync(SURFACE, event)
        latencies.append((perf_counter() - started) * 1000)
    return Sample(len(events), perf_counter() - begun, tuple(latencies))


async def _run_tasks(
    work: Callable[[dict[str, Any]], Awaitable[Any]],
    events: Iterable[dict[str, Any]],
    concurrency: int,
) -> Sample:
    latencies: list[float] = []
    waiting = iter(events)

    async def worker() -> None:
        for event in waiting:
            begun = perf_counter()
            await work(event)
            latencies.append((perf_counter() - begun) * 1000)

    begun = perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return Sample(len(latencies), perf_counter() - begun, tuple(latencies))


class PlainBaseline:
    """The same two durable commits an event, one after the other, by hand and with nothing around them.

    First the key and the event; then the state, the outcome, a log line and the business row. It keeps
    the same facts as the ledger and none of the gate's promises.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        execute = self._connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute("CREATE TABLE claim (id INTEGER PRIMARY KEY, key TEXT UNIQUE, state INTEGER, at REAL)")
        execute("CREATE TABLE event (claim INTEGER PRIMARY KEY, body TEXT)")
        execute("CREATE TABLE outcome (claim INTEGER PRIMARY KEY, body TEXT)")
        execute("CREATE TABLE log (id INTEGER PRIMARY KEY, claim INTEGER, state INTEGER, at REAL)")
        execute(CREATE_BOOKING)

    def run(self, events: Iterable[dict[str, Any]]) -> Sample:
        """Runs events one after the other."""
        latencies: list[float] = []
        start = perf_counter()
        for event in events:
            begun = perf_counter()
            self.run_one(event)
            latencies.append((perf_counter() - begun) * 1000)
        return Sample(len(latencies), perf_counter() - start, tuple(latencies))

    def run_one(self, event: dict[str, Any]) -> None:
        """Two transactions, each durable before the next begins."""
        execute, now = self._connection.execute, perf_counter()
        key = f"{event['notificationId']}:{event['equipment_number']}"
        execute("BEGIN IMMEDIATE")
        cursor = execute("INSERT INTO claim (key, state, at) VALUES (?, 1, ?)", (key, now))
        claim = cursor.lastrowid
        execute("INSERT INTO event VALUES (?, ?)", (claim, json.dumps(event)))
        execute("COMMIT")
        execute("BEGIN IMMEDIATE")
        execute("UPDATE claim SET state = 2 WHERE id = ? AND state = 1", (claim,))
        execute("INSERT INTO outcome VALUES (?, ?)", (claim, json.dumps({"slot": key})))
        execute("INSERT INTO log (claim, state, at) VALUES (?, 2, ?)", (claim, now))
        execute(INSERT_BOOKING, (event["equipment_number"], key))
        execute("COMMIT")

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()


def event_blocks(count: int, prefix: str = "N") -> Callable[[], list[dict[str, Any]]]:
    """Hands out blocks of `count` events, each with keys never seen before."""
    numbers = iter(range(10**9))
    return lambda: [make_event(number, prefix) for number in islice(numbers, count)]


def events_for(seconds: float, prefix: str) -> Iterator[dict[str, Any]]:
    """Events with keys never seen before, from the first that is asked for until the time is over."""
    begun = perf_counter()
    for number in count():
        if perf_counter() - begun >= seconds:
            return
        yield make_event(number, prefix)
