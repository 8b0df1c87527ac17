"""A process that delivers and is killed: its keys are free again after at most 15 s (B5)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oncegate import Gate
from oncegate.clock import SystemClock
from oncegate.commit.lane_operations import Enqueue
from oncegate.lanes import Delivered, Destination, Engine
from oncegate.store import Delivery, Outgoing

pytestmark = pytest.mark.slow

KEYS_FREE_AFTER_MS = 15_000
DELIVERS = """
import asyncio, sys
from oncegate import Gate
from oncegate.lanes import Destination, Engine

async def hang(delivery):
    print("begun", flush=True)
    await asyncio.Event().wait()

async def main():
    with Gate(sys.argv[1]) as gate:
        async with Engine(gate.engine.commits, [Destination("shop", hang)]):
            await asyncio.Event().wait()

asyncio.run(main())
"""


class Ahead(SystemClock):
    """The machine's clock, some time later."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self._ahead_ms = ahead_ms

    def ticks_ms(self) -> int:
        return super().ticks_ms() + self._ahead_ms


def test_keys_of_a_killed_process_are_free_after_fifteen_seconds(tmp_path: Path) -> None:
    """A real process, a real SIGKILL in the middle of a delivery; only the time is made to pass."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    with Gate(url) as gate:
        gate.engine.commits.submit(Enqueue(Outgoing("shop", "", "k", "e-1", "t", b"{}", b"e-1", 0)))
    with subprocess.Popen([sys.executable, "-c", DELIVERS, url], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGKILL)
    got: list[str] = []

    async def deliver(delivery: Delivery) -> Delivered:
        got.append(delivery.event_id)
        return Delivered("200")

    clock = Ahead(KEYS_FREE_AFTER_MS)
    with Gate(url, clock=clock) as gate:
        engine = Engine(gate.engine.commits, [Destination("shop", deliver)], clock=clock)
        done = asyncio.run(engine.run_once())

    assert (got, done.delivered) == (["e-1"], 1)
