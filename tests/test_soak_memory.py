"""Memory stays flat however many events pass. Long: run with `make soak`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oncegate.bench.workload import event_blocks, open_gate, prepare_business_table, run_gate

EVENTS = 1_000_000
BLOCK = 20_000
GROWTH_MAX = 30 * 2**20  # bytes, once caches are full; one event kept would be a thousand times that


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_million_events_leave_nothing_behind_in_memory(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """After the first tenth has filled the caches, the rest adds next to nothing."""
    # Given a gate whose caches a hundred thousand events have filled
    gate = open_gate(f"sqlite:///{tmp_path / 'ledger.db'}")
    prepare_business_table(gate)
    blocks = event_blocks(BLOCK)

    async def pass_through(count: int) -> None:
        for _ in range(count // BLOCK):
            await run_gate(gate, blocks(), 256)

    asyncio.run(pass_through(EVENTS // 10))
    before = _resident_bytes()
    # When nine times as many have passed
    asyncio.run(pass_through(EVENTS - EVENTS // 10))
    # Then the process is as large as it was
    grown = _resident_bytes() - before
    gate.close()
    record_property("resident_mib_after_a_tenth", round(before / 2**20))
    record_property("grown_mib", round(grown / 2**20, 1))
    assert grown < GROWTH_MAX, f"{grown / 2**20:.1f} MiB more than the {before / 2**20:.0f} MiB before"
