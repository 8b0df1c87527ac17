"""What signals and the worker cost the hot path: the same events through a gate with them and one without.

Processor time, not the clock: it is what a busy machine has least of, and it hardly depends on what else
runs. Blocks take turns, and turns at being first, so that whatever disturbs them disturbs both. Single
pairs still scatter by more than what is looked for; told is their median, and how far to trust it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final

from oncegate.bench.workload import event_blocks, open_gate, prepare_business_table, run_gate
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.gate.runtime.arrival_stats import Sightings
from oncegate.gate.runtime.cache import CachedOutcome
from oncegate.model.keys import Key
from oncegate.model.surface import Arrival, SurfaceRule
from oncegate.store import Reserved
from oncegate.wiring import Gate, open_store

TASKS: Final = 256
WARM_UP: Final = 2  # pairs


class NoSightings(Sightings):
    """Sees nothing, so that there is something to compare with."""

    def answered(self, rule: SurfaceRule, arrival: Arrival, reserved: Reserved, began_us: int = 0) -> None:
        """Lets it pass."""

    def remembered(self, rule: SurfaceRule, known: CachedOutcome, key: Key, label: str = "") -> None:
        """Lets it pass."""

    def count(self, rule: SurfaceRule, what: int) -> None:
        """Lets it pass."""


@dataclass(slots=True)
class WatchingBench:
    """How many blocks of how many events."""

    pairs: int = 40
    events: int = 5_000

    async def run(self, place: Path) -> dict[str, Any]:
        """Measures both and returns the overhead as plain values."""
        blocks = event_blocks(self.events)
        watched, blind = _gate(place / "watched.db", seeing=True), _gate(place / "blind.db", seeing=False)
        try:
            turns = range(self.pairs + WARM_UP)
            costs = [await _pair(watched, blind, blocks, number % 2 == 0) for number in turns][WARM_UP:]
        finally:
            watched.close()
            blind.close()
        return _summary(costs, self.events)


def _gate(path: Path, *, seeing: bool) -> Gate:
    store, clock = open_store(f"sqlite:///{path}"), SystemClock()
    commits = GroupCommit(store, clock=clock)
    sightings = Sightings(commits, clock) if seeing else NoSightings(commits, clock)
    gate = open_gate(store=store, clock=clock, commits=commits, sightings=sightings)
    prepare_business_table(gate)
    return gate


async def _pair(
    watched: Gate, blind: Gate, blocks: Callable[[], list[dict[str, Any]]], watched_first: bool
) -> tuple[float, float]:
    if watched_first:
        with_them = await _cost(watched, blocks(), with_worker=True)
        return with_them, await _cost(blind, blocks(), with_worker=False)
    without = await _cost(blind, blocks(), with_worker=False)
    return await _cost(watched, blocks(), with_worker=True), without


async def _cost(gate: Gate, events: list[dict[str, Any]], *, with_worker: bool) -> float:
    """Seconds of processor time for a block, including what is reported to the ledger afterwards."""
    async with AsyncExitStack() as stack:
        if with_worker:
            await stack.enter_async_context(gate.worker(notifiers=(), without=("accepted", "deliveries")))
        begun = process_time()
        await run_gate(gate, events, TASKS)
        gate.engine.sightings.flush()
        return process_time() - begun


def interval_of_median(ordered: list[float]) -> tuple[float, float]:
    """Where the median lies with 95 % certainty, whatever the distribution: two of the ordered values."""
    count = len(ordered)
    beside = max(0, int((count - 1.96 * sqrt(count)) / 2))
    return ordered[beside], ordered[count - 1 - beside]


def _summary(costs: list[tuple[float, float]], events: int) -> dict[str, Any]:
    ratios = sorted(with_them / without for with_them, without in costs)
    low, high = interval_of_median(ratios)
    return {
        "concurrency": TASKS,
        "pairs": len(costs),
        "with_us": round(median(cost for cost, _ in costs) / events * 1e6, 1),
        "without_us": round(median(cost for _, cost in costs) / events * 1e6, 1),
        "overhead": round(median(ratios) - 1, 3),
        "overhead_low": round(low - 1, 3),
        "overhead_high": round(high - 1, 3),
    }
