"""`oncegate bench postgres`: the gate on a PostgreSQL server of its own, beside pgbench, in one run.

Subjects take turns, round after round, each for the same time. The server has default settings, fsync on.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Final

from lab.bench import handwritten
from lab.bench.joined import joined_modes, open_joined_gate
from lab.bench.pgbench import TABLES, run_pgbench
from lab.bench.processes import (
    ALONE,
    ALONE_WITH_ALL,
    CREWS,
    JOINED,
    PROCESSES,
    Crew,
    Together,
    as_document,
    gain,
    name_of,
    run_together,
    server_seconds,
)
from lab.bench.processor import Meter, Spent, medians
from oncegate.bench.samples import Sample, SampleSummary
from oncegate.bench.workload import event_blocks, events_for, open_gate, run_gate
from oncegate.testing.postgres import PostgresServer
from oncegate.wiring import Gate, open_store

PGBENCH_CLIENTS: Final = (1, 8, 32)
CREATE_BOOKING: Final = (
    "CREATE TABLE booking (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, equipment text, slot text)"
)
JOINED_TASKS: Final = 32
WARM_EACH: Final = 8  # a server plans a statement anew the first five times on each connection
# Those that run a transaction an event are measured at pgbench's numbers of clients: best against best.
MODE_CONCURRENCIES: Final = {"data": (1, 32, 256), "block": (8, 32), "same database": (8, 32)}
ASYNCPG: Final = "tx= asyncpg"
ON_UVLOOP: Final = f"{ASYNCPG}, on uvloop"


@dataclass(slots=True)
class PostgresBench:
    """What to measure."""

    rounds: int = 3
    seconds: int = 4
    talk: Callable[[str], None] = field(default=lambda line: None)
    _rates: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _samples: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)
    _by_hand: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)
    _together: dict[Crew, list[Together]] = field(default_factory=dict)
    _spent: dict[str, list[Spent]] = field(default_factory=dict)
    _meter: Callable[[], Meter] = field(init=False)

    def run(self) -> dict[str, Any]:
        """Measures everything and returns it as plain values."""
        with PostgresServer() as server:
            self._meter = partial(Meter, partial(server_seconds, server))
            for number in range(self.rounds):
                self.talk(f"round {number + 1} of {self.rounds}")
                self._round(server, number)
        return self._document()

    def _round(self, server: PostgresServer, number: int) -> None:
        url = server.new_database()
        _prepare(url)
        for script in ("two transactions", "one transaction"):
            for clients in PGBENCH_CLIENTS:
                meter, name = self._meter(), f"pgbench, {script}, {clients} clients"
                rate = run_pgbench(server, url, script, clients, self.seconds)
                self._rates.setdefault(name, []).append(rate)
                self._note(name, meter, rate[0] * self.seconds)
        self._run_by_hand(url)
        for mode, concurrencies in MODE_CONCURRENCIES.items():
            for tasks in concurrencies:
                sample = asyncio.run(self._gate(url, mode, tasks))
                self._samples.setdefault((mode, tasks), []).append(sample)
        for name, mode, run_loop in _joined_subjects():
            sample = run_loop(self._joined(url, name, mode, JOINED_TASKS))
            self._samples.setdefault((name, JOINED_TASKS), []).append(sample)
        crews = (*CREWS, JOINED) if JOINED.mode in joined_modes() else CREWS
        for crew in crews if number % 2 else reversed(crews):
            run = run_together(server, url, crew, self.seconds, f"{crew.mode}-{crew[0]}x{crew[1]}")
            self._together.setdefault(crew, []).append(run)

    def _run_by_hand(self, url: str) -> None:
        if not handwritten.is_available():
            self.talk("left out: bare asyncpg is not installed")
            return
        for script in handwritten.SCRIPTS:
            for tasks in (1, 32):
                events, meter = events_for(self.seconds, f"{script}-{tasks}"), self._meter()
                sample = asyncio.run(handwritten.run_by_hand(url, script, events, tasks))
                self._by_hand.setdefault((script, tasks), []).append(sample)
                self._note(f"asyncpg, {script}, {tasks} at once", meter, sample.events)

    async def _gate(self, url: str, mode: str, tasks: int) -> Sample:
        with open_gate(url, mode) as gate:
            return await self._warm_and_run(gate, mode, tasks)

    async def _joined(self, url: str, name: str, mode: str, tasks: int) -> Sample:
        async with open_joined_gate(url, mode, tasks) as gate:
            return await self._warm_and_run(gate, name, tasks)

    async def _warm_and_run(self, gate: Gate, name: str, tasks: int) -> Sample:
        warm = event_blocks(tasks * WARM_EACH, prefix=f"{name}-{tasks}-warm")
        await run_gate(gate, warm(), tasks)
        events, meter = events_for(self.seconds, f"{name}-{tasks}"), self._meter()
        sample = await run_gate(gate, events, tasks)
        self._note(f"gate, {name}, {tasks} at once", meter, sample.events)
        return sample

    def _note(self, name: str, meter: Meter, events: float) -> None:
        self._spent.setdefault(name, []).append(meter.spent(max(1.0, events)))

    def _document(self) -> dict[str, Any]:
        pgbench = {name: _spread(rates) for name, rates in self._rates.items()}
        gate = [SampleSummary.of(mode, tasks, found) for (mode, tasks), found in self._samples.items()]
        by_hand = [
            SampleSummary.of(script, tasks, found) for (script, tasks), found in self._by_hand.items()
        ]
        return {
            "pgbench": pgbench,
            "asyncpg": [item.as_json() for item in by_hand],
            "gate": [item.as_json() for item in gate],
            "processes": as_document(self._together),
            "processor": {name: medians(runs) for name, runs in self._spent.items()},
            "ratios": _ratios(pgbench, gate, self._together),
        }


RunLoop = Callable[[Coroutine[Any, Any, Sample]], Sample]


def _joined_subjects() -> list[tuple[str, str, RunLoop]]:
    """Handlers with transactions of their own: the name of each subject, its mode, and what runs it."""
    found: list[tuple[str, str, RunLoop]] = [(mode, mode, asyncio.run) for mode in joined_modes()]
    if importlib.util.find_spec("uvloop") and ASYNCPG in joined_modes():  # part of the `server` extra
        found.insert(1, (ON_UVLOOP, ASYNCPG, _run_on_uvloop))
    return found


def _run_on_uvloop(work: Coroutine[Any, Any, Sample]) -> Sample:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _ratios(
    pgbench: dict[str, dict[str, float]], gate: list[SampleSummary], together: dict[Crew, list[Together]]
) -> dict[str, float]:
    rates = {(item.name, item.concurrency): item for item in gate}
    two = max(v["rate"] for n, v in pgbench.items() if "two" in n)
    one = max(v["rate"] for n, v in pgbench.items() if "one" in n)
    single = pgbench["pgbench, two transactions, 1 clients"]["latency_ms"]
    against_two, against_one = (
        f"against pgbench's best with {n}" for n in ("two transactions", "one transaction")
    )
    block, same = (_best(gate, mode) for mode in ("block", "same database"))
    ratios = {
        f"writes as data at 256, {against_two}": rates["data", 256].rate / two,
        "writes as data at 1: median latency, against one pgbench client's": rates["data", 1].p50_ms
        / single,
        f"commit block at its best ({block.concurrency} at once), {against_two}": block.rate / two,
        f"same database at its best ({same.concurrency} at once), {against_one}": same.rate / one,
        f"{PROCESSES} processes together, against one with as many callers as each": gain(together, ALONE),
        f"{PROCESSES} processes together, against one with all their callers": gain(
            together, ALONE_WITH_ALL
        ),
    }
    for name, _, _ in _joined_subjects():
        ratios[f"{name} at {JOINED_TASKS}, {against_two}"] = rates[name, JOINED_TASKS].rate / two
    if JOINED in together:
        rate = median(run.rate for run in together[JOINED])
        ratios[f"{name_of(JOINED)}, {against_two}"] = rate / two
    return {name: round(value, 2) for name, value in ratios.items()}


def _best(gate: list[SampleSummary], mode: str) -> SampleSummary:
    return max((item for item in gate if item.name == mode), key=lambda item: item.rate)


def _spread(rates: list[tuple[float, float]]) -> dict[str, float]:
    values = [rate for rate, _ in rates]
    return {
        "rate": round(median(values)),
        "rate_low": round(min(values)),
        "rate_high": round(max(values)),
        "latency_ms": round(median(latency for _, latency in rates), 3),
    }


def _prepare(url: str) -> None:
    session = open_store(url).connect()
    try:
        with session.unit():
            for statement in (*TABLES, CREATE_BOOKING):
                session.execute(statement, ())
    finally:
        session.close()
