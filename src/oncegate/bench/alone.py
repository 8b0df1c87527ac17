"""Events one at a time: the plain baseline, a task and a thread beside each other, in short turns.

At one at a time nearly all is waiting for a disk, and a disk that others use too changes its speed from one
second to the next. Subjects that take turns every few dozen events meet the same disk; subjects that have a
second each do not. Called by `oncegate bench gate`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from oncegate.bench.samples import Sample, joined
from oncegate.bench.workload import (
    PlainBaseline,
    event_blocks,
    open_gate,
    prepare_business_table,
    run_gate,
    run_gate_in_thread,
)
from oncegate.wiring import Gate

TURN_EVENTS: Final = 50
WARM_UP_TURNS: Final = 4
BASELINE: Final = "baseline"
TASK: Final = "fresh"
THREAD: Final = "fresh, a thread"

_Run = Callable[[list[dict[str, Any]]], Awaitable[Sample]]


async def measure_alone(place: Path, events: int) -> dict[str, Sample]:
    """Runs so many events of each subject, in an empty folder; a sample for each."""
    blocks = event_blocks(TURN_EVENTS)
    with ExitStack() as opened:
        runs = _subjects(place, opened)
        turns: dict[str, list[Sample]] = {name: [] for name in runs}
        for _ in range(WARM_UP_TURNS + max(1, events // TURN_EVENTS)):
            for name, run in runs.items():
                turns[name].append(await run(blocks()))
    return {name: joined(samples[WARM_UP_TURNS:]) for name, samples in turns.items()}


def _subjects(place: Path, opened: ExitStack) -> dict[str, _Run]:
    baseline = opened.enter_context(closing(PlainBaseline(place / "baseline.db")))
    task = opened.enter_context(closing(_gate_at(place / "task.db", "data")))
    thread = opened.enter_context(closing(_gate_at(place / "thread.db", "thread")))

    async def run_baseline(events: list[dict[str, Any]]) -> Sample:
        return baseline.run(events)

    async def run_task(events: list[dict[str, Any]]) -> Sample:
        return await run_gate(task, events, 1)

    async def run_thread(events: list[dict[str, Any]]) -> Sample:
        return run_gate_in_thread(thread, events)

    return {BASELINE: run_baseline, TASK: run_task, THREAD: run_thread}


def _gate_at(path: Path, mode: str) -> Gate:
    gate = open_gate(f"sqlite:///{path}", mode)
    prepare_business_table(gate)
    return gate
