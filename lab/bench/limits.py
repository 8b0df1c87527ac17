"""The limits that everything is measured against: the disk, a plain program, pgbench, the bare driver."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from lab.bench.pgbench import TABLES, run_pgbench
from oncegate.bench.samples import Sample, SampleSummary
from oncegate.bench.workload import PlainBaseline, event_blocks
from oncegate.testing.postgres import PostgresServer

FLUSH_BYTES: Final = 512
PGBENCH_CLIENTS: Final = (1, 8, 32)
CREATE_BOOKING: Final = (
    "CREATE TABLE booking (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, equipment text, slot text)"
)
SQLITE_LOOP: Final = "SQLite by hand, two commits an event"
DRIVER_LOOP: Final = "psycopg by hand, two transactions an event"
FLUSHES: Final = "write and fsync, 512 bytes"


@dataclass(slots=True)
class Limits:
    """Measured once a round, between the subjects."""

    postgres: PostgresServer | None
    seconds: float
    samples: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)
    pgbench: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=dict)

    def take_round(self) -> None:
        """Measures every limit once."""
        with tempfile.TemporaryDirectory(prefix="oncegate-bench-") as folder:
            self._note(FLUSHES, _flushes(Path(folder) / "flush", self.seconds))
            self._note(SQLITE_LOOP, _sqlite_loop(Path(folder) / "plain.db", self.seconds))
        if self.postgres is not None:
            self._postgres_round(self.postgres)

    def _postgres_round(self, server: PostgresServer) -> None:
        url = server.new_database()
        _create_tables(url)
        self._note(DRIVER_LOOP, _driver_loop(url, self.seconds))
        for script in ("two transactions", "one transaction"):
            for clients in PGBENCH_CLIENTS:
                found = run_pgbench(server, url, script, clients, max(1, round(self.seconds)))
                self.pgbench.setdefault((script, clients), []).append(found)

    def _note(self, name: str, sample: Sample) -> None:
        self.samples.setdefault((name, 1), []).append(sample)

    def as_json(self) -> list[dict[str, Any]]:
        """One row a limit."""
        rows = [
            SampleSummary.of(name, tasks, found).as_json() for (name, tasks), found in self.samples.items()
        ]
        return rows + [_pgbench_row(*place, found) for place, found in self.pgbench.items()]


def _pgbench_row(script: str, clients: int, found: list[tuple[float, float]]) -> dict[str, Any]:
    rates = [rate for rate, _ in found]
    latency = median(latency for _, latency in found)
    spread = {"rate": median(rates), "rate_low": min(rates), "rate_high": max(rates)}
    return {"name": f"pgbench, {script}", "concurrency": clients, **spread, "p50_ms": latency}


def _flushes(path: Path, seconds: float) -> Sample:
    block, file = b"x" * FLUSH_BYTES, os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:

        def flush(_: int) -> None:
            os.write(file, block)
            os.fsync(file)

        return _timed(flush, seconds)
    finally:
        os.close(file)


def _sqlite_loop(path: Path, seconds: float) -> Sample:
    baseline = PlainBaseline(path)
    try:
        blocks = event_blocks(1)
        return _timed(lambda _: baseline.run_one(blocks()[0]), seconds)
    finally:
        baseline.close()


def _timed(step: Any, seconds: float) -> Sample:
    latencies: list[float] = []
    begun = perf_counter()
    while (now := perf_counter()) - begun < seconds:
        step(len(latencies))
        latencies.append((perf_counter() - now) * 1000)
    return Sample(len(latencies), perf_counter() - begun, tuple(latencies))


def _create_tables(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in (*TABLES, CREATE_BOOKING):
            connection.execute(statement)


def _driver_loop(url: str, seconds: float) -> Sample:
    """What a careful user would write: reserve in one transaction, settle in another."""
    import psycopg

    body = "x" * 480
    with psycopg.connect(url, autocommit=True) as connection:
        run = connection.execute

        def step(number: int) -> None:
            key = f"loop-{number}"
            with connection.transaction():
                run("INSERT INTO bench_claim (key, state, at) VALUES (%s, 1, 0)", (key,))
                run("INSERT INTO bench_event (key, body) VALUES (%s, %s)", (key, body))
            with connection.transaction():
                run("UPDATE bench_claim SET state = 2 WHERE key = %s AND state = 1", (key,))
                run(
                    "INSERT INTO bench_outcome (key, body) VALUES (%s, %s)", (key, '{"slot": "0123456789"}')
                )
                run("INSERT INTO bench_log (key, state, at) VALUES (%s, 2, 0)", (key,))
                run("INSERT INTO booking (equipment, slot) VALUES ('MSKU0000001', '0123456789')")

        return _timed(step, seconds)
