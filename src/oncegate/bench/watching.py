"""What signals and caretakers cost the hot path: the same events through a gate with them and one without.

Processor time, not the clock: it is what a busy machine has least of, and it hardly depends on what else
runs. Blocks take turns, so that whatever disturbs them disturbs both.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from time import process_time
from typing import Any, Final

from oncegate.bench.workload import event_blocks, open_gate, prepare_business_table, run_gate
from oncegate.clock import SystemClock
from oncegate.gate.cache import Remembered
from oncegate.gate.sightings import Sightings
from oncegate.groupcommit import GroupCommit
from oncegate.model.surface import Arrival, SurfaceRule
from oncegate.store import Reserved, What
from oncegate.wiring import Gate, open_store

TASKS: Final = 256


class NoSightings(Sightings):
    """Sees nothing, so that there is something to compare with."""

    def answered(self, rule: SurfaceRule, arrival: Arrival, reserved: Reserved, began_us: int = 0) -> None:
        """Lets it pass."""

    def remembered(self, rule: SurfaceRule, known: Remembered) -> None:
        """Lets it pass."""

    def count(self, rule: SurfaceRule, what: What) -> None:
        """Lets it pass."""


@dataclass(slots=True)
class WatchingBench:
    """How many blocks of how many events."""

    pairs: int = 15
    events: int = 5_000

    async def run(self, place: Path) -> dict[str, Any]:
        """Measures both and returns the overhead as plain values."""
        blocks = event_blocks(self.events)
        watched, blind = _gate(place / "watched.db", seeing=True), _gate(place / "blind.db", seeing=False)
        try:
            costs = [await _pair(watched, blind, blocks) for _ in range(self.pairs + 1)][1:]
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
    watched: Gate, blind: Gate, blocks: Callable[[], list[dict[str, Any]]]
) -> tuple[float, float]:
    return await _cost(watched, blocks(), with_caretakers=True), await _cost(
        blind, blocks(), with_caretakers=False
    )


async def _cost(gate: Gate, events: list[dict[str, Any]], *, with_caretakers: bool) -> float:
    """Seconds of processor time for a block, whatever is told to the ledger afterwards included."""
    async with AsyncExitStack() as stack:
        if with_caretakers:
            await stack.enter_async_context(gate.caretakers(notifiers=()))
        begun = process_time()
        await run_gate(gate, events, TASKS)
        gate.sightings.flush()
        return process_time() - begun


def _summary(costs: list[tuple[float, float]], events: int) -> dict[str, Any]:
    ratios = [with_them / without for with_them, without in costs]
    low, _, high = quantiles(ratios, n=4)
    return {
        "concurrency": TASKS,
        "pairs": len(costs),
        "with_us": round(median(cost for cost, _ in costs) / events * 1e6, 1),
        "without_us": round(median(cost for _, cost in costs) / events * 1e6, 1),
        "overhead": round(median(ratios) - 1, 3),
        "overhead_low": round(low - 1, 3),
        "overhead_high": round(high - 1, 3),
    }
