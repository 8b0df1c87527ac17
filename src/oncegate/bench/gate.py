"""`oncegate bench gate`: the gate on the embedded ledger beside a plain baseline, in one run.

Subjects take turns, round after round, so that a noisy machine disturbs all of them alike; what counts is
the ratio. Called by the command line; writes nothing but its own temporary ledgers.
"""

from __future__ import annotations

import asyncio
import importlib.util
import platform
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from oncegate.bench.samples import Sample, Summary
from oncegate.bench.size import measure_size
from oncegate.bench.watching import WatchingBench
from oncegate.bench.workload import (
    PlainBaseline,
    event_blocks,
    open_gate,
    prepare_business_table,
    run_gate,
    run_gate_in_thread,
)
from oncegate.errors import BadUrl, StoreUnavailable

EVENTS_PER_ROUND: Final = {1: 1_000, 32: 6_000}
EVENTS_PER_ROUND_OTHERWISE: Final = 15_000
BASELINE_EVENTS: Final = 1_000
Talk = Callable[[str], None]


@dataclass(slots=True)
class GateBench:
    """What to measure."""

    url: str | None
    concurrencies: tuple[int, ...] = (1, 32, 256)
    rounds: int = 5
    size_keys: int = 100_000
    scale: float = 1.0
    talk: Talk = field(default=lambda line: None)

    def run(self) -> dict[str, Any]:
        """Measures everything and returns it as plain values."""
        with tempfile.TemporaryDirectory(prefix="oncegate-bench-") as folder:
            place = Path(folder) if self.url is None else _folder_of(self.url)
            summaries = asyncio.run(self._measure(place))
            self.talk("what signals and caretakers cost")
            watching = asyncio.run(self._watching().run(Path(folder)))
            size = measure_size(place, self.size_keys) if self.size_keys else None
        return _document(summaries, size) | {"watching": watching}

    def _watching(self) -> WatchingBench:
        return WatchingBench() if self.scale >= 1 else WatchingBench(pairs=5, events=1_000)

    async def _measure(self, place: Path) -> list[Summary]:
        samples: dict[tuple[str, int], list[Sample]] = {}
        for number in range(self.rounds):
            self.talk(f"round {number + 1} of {self.rounds}")
            await self._round(place, number, samples)
        return [Summary.of(name, tasks, found) for (name, tasks), found in samples.items()]

    async def _round(self, place: Path, number: int, samples: dict[tuple[str, int], list[Sample]]) -> None:
        baseline = _with_files(place / f"baseline-{number}.db", self._baseline)
        samples.setdefault(("baseline", 1), []).append(baseline)
        for tasks in self.concurrencies:
            path = place / f"gate-{number}-{tasks}.db"
            for name, sample in (await self._gate(path, tasks)).items():
                samples.setdefault((name, tasks), []).append(sample)
            _remove(path)
        path = place / f"thread-{number}.db"
        samples.setdefault(("fresh, a thread", 1), []).append(_with_files(path, self._thread))
        if importlib.util.find_spec("uvloop"):  # part of the `server` extra
            await self._other_loop(place / f"uvloop-{number}.db", samples)

    async def _other_loop(self, path: Path, samples: dict[tuple[str, int], list[Sample]]) -> None:
        """The largest crowd once more, on a loop that is not asyncio's own."""
        import uvloop

        tasks = max(self.concurrencies)

        def measure() -> Sample:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(self._gate(path, tasks))["fresh"]

        sample = await asyncio.to_thread(measure)
        samples.setdefault(("fresh, uvloop", tasks), []).append(sample)
        _remove(path)

    def _thread(self, path: Path) -> Sample:
        blocks = event_blocks(max(100, int(EVENTS_PER_ROUND[1] * self.scale)))
        gate = open_gate(f"sqlite:///{path}", "thread")
        try:
            prepare_business_table(gate)
            run_gate_in_thread(gate, blocks()[:100])
            return run_gate_in_thread(gate, blocks())
        finally:
            gate.close()

    def _baseline(self, path: Path) -> Sample:
        baseline = PlainBaseline(path)
        try:
            blocks = event_blocks(max(100, int(BASELINE_EVENTS * self.scale)))
            baseline.run(blocks()[:100])
            return baseline.run(blocks())
        finally:
            baseline.close()

    async def _gate(self, path: Path, tasks: int) -> dict[str, Sample]:
        count = EVENTS_PER_ROUND.get(tasks, EVENTS_PER_ROUND_OTHERWISE)
        blocks = event_blocks(max(tasks * 2, int(count * self.scale)))
        warm_up, events = blocks()[: tasks * 2], blocks()
        gate = open_gate(f"sqlite:///{path}")
        try:
            prepare_business_table(gate)
            await run_gate(gate, warm_up, tasks)
            fresh = await run_gate(gate, events, tasks)
            remembered = await run_gate(gate, events, tasks)
        finally:
            gate.close()
        again = open_gate(f"sqlite:///{path}")
        try:
            read = await run_gate(again, events, tasks)
        finally:
            again.close()
        return {"fresh": fresh, "replay from memory": remembered, "replay from ledger": read}


def _with_files(path: Path, measure: Callable[[Path], Sample]) -> Sample:
    try:
        return measure(path)
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _folder_of(url: str) -> Path:
    """The folder in which an address would put its file: what is measured is that disk."""
    if not url.startswith("sqlite:///"):
        raise BadUrl(f"{url[:120]} is no sqlite:/// address; this measures the embedded ledger")
    folder = Path(url.removeprefix("sqlite:///")).absolute().parent
    if not folder.is_dir():
        raise StoreUnavailable(f"there is no folder {folder}; create it first")
    return folder


def _document(summaries: list[Summary], size: dict[str, Any] | None) -> dict[str, Any]:
    baseline = next(item for item in summaries if item.name == "baseline")
    fresh = {item.concurrency: item for item in summaries if item.name == "fresh"}
    ratios: dict[str, float] = {}
    for item in summaries:
        if item.name.startswith("fresh"):
            what = f"{item.name} at {item.concurrency}"
            ratios[f"{what}: events/s against the baseline"] = item.rate / baseline.rate
            ratios[f"{what}: median latency against the baseline"] = item.p50_ms / baseline.p50_ms
    for item in summaries:
        if item.name.startswith("replay"):
            against = fresh[item.concurrency].rate
            ratios[f"{item.name} at {item.concurrency}: against fresh"] = item.rate / against
    return {
        "machine": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "durability": "synchronous=FULL, WAL",
        },
        "results": [item.as_json() for item in summaries],
        "ratios": {name: round(value, 2) for name, value in ratios.items()},
        "size": size,
    }
