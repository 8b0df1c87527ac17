"""`oncegate bench gate`: the gate on the embedded ledger beside a plain baseline, in one run.

Subjects take turns, round after round, so that a noisy machine disturbs all of them alike; what counts is
the ratio within a round, and its spread over the rounds. Called by the command line; writes nothing but its
own temporary ledgers.
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
from statistics import median
from typing import Any, Final

from oncegate.bench.alone import BASELINE, TASK, measure_alone
from oncegate.bench.samples import Sample, SampleSummary
from oncegate.bench.size import measure_size
from oncegate.bench.watching import WatchingBench
from oncegate.bench.workload import event_blocks, open_gate, prepare_business_table, run_gate
from oncegate.errors import BadUrl, StoreUnavailable

EVENTS_PER_ROUND: Final = {1: 1_000, 32: 6_000}
EVENTS_PER_ROUND_OTHERWISE: Final = 15_000
Talk = Callable[[str], None]
Samples = dict[tuple[str, int], list[Sample]]  # by subject and tasks at once, a sample a round


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
        where = None if self.url is None else _folder_of(self.url)
        with tempfile.TemporaryDirectory(prefix="oncegate-bench-", dir=where) as folder:
            place = Path(folder)
            samples = asyncio.run(self._measure(place))
            self.talk("what signals and the worker cost")
            watching = asyncio.run(self._watching().run(place))
            size = measure_size(place, self.size_keys) if self.size_keys else None
        return _document(samples, size) | {"watching": watching}

    def _watching(self) -> WatchingBench:
        return WatchingBench() if self.scale >= 1 else WatchingBench(pairs=5, events=1_000)

    async def _measure(self, place: Path) -> Samples:
        samples: Samples = {}
        for number in range(self.rounds):
            self.talk(f"round {number + 1} of {self.rounds}")
            await self._round(place, number, samples)
        return samples

    async def _round(self, place: Path, number: int, samples: Samples) -> None:
        with tempfile.TemporaryDirectory(prefix="oncegate-bench-", dir=place) as folder:
            alone = await measure_alone(Path(folder), int(EVENTS_PER_ROUND[1] * self.scale))
        for name, sample in alone.items():
            samples.setdefault((name, 1), []).append(sample)
        for tasks in self.concurrencies:
            path = place / f"gate-{number}-{tasks}.db"
            for name, sample in (await self._gate(path, tasks)).items():
                if (name, tasks) != (TASK, 1):  # measured above, beside the baseline
                    samples.setdefault((name, tasks), []).append(sample)
            _remove(path)
        if (crowd := max(self.concurrencies)) > 1 and importlib.util.find_spec("uvloop"):
            await self._other_loop(place / f"uvloop-{number}.db", crowd, samples)

    async def _other_loop(self, path: Path, tasks: int, samples: Samples) -> None:
        """The largest crowd once more, on a loop that is not asyncio's own: part of the `server` extra."""
        import uvloop

        def measure() -> Sample:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(self._gate(path, tasks))[TASK]

        sample = await asyncio.to_thread(measure)
        samples.setdefault(("fresh, uvloop", tasks), []).append(sample)
        _remove(path)

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
        return {TASK: fresh, "replay from memory": remembered, "replay from ledger": read}


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


def _document(samples: Samples, size: dict[str, Any] | None) -> dict[str, Any]:
    ratios = _ratios(samples)
    return {
        "machine": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "durability": "synchronous=FULL, WAL",
        },
        "results": [SampleSummary.of(*subject, found).as_json() for subject, found in samples.items()],
        "ratios": {name: round(median(found), 2) for name, found in ratios.items()},
        "spread": {name: [round(min(found), 2), round(max(found), 2)] for name, found in ratios.items()},
        "size": size,
    }


def _ratios(samples: Samples) -> dict[str, list[float]]:
    """What each subject did beside another one, round by round."""
    baseline, ratios = samples[BASELINE, 1], dict[str, list[float]]()
    for (name, tasks), found in samples.items():
        pairs = list(zip(found, baseline, strict=True))
        if name.startswith(TASK):
            what = f"{name} at {tasks}"
            ratios[f"{what}: events/s against the baseline"] = [
                one.rate / other.rate for one, other in pairs
            ]
            ratios[f"{what}: median latency against the baseline"] = [
                one.percentile(0.5) / other.percentile(0.5) for one, other in pairs
            ]
    for (name, tasks), found in samples.items():
        if name.startswith("replay"):
            pairs = list(zip(found, samples[TASK, tasks], strict=True))
            ratios[f"{name} at {tasks}: against fresh"] = [one.rate / other.rate for one, other in pairs]
    return ratios
