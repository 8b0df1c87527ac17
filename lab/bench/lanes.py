"""Ordered, durable deliveries a second, to a destination that does nothing: what lanes alone cost.

For `oncegate bench sender` and for whoever changes the engine. Prints nothing; returns figures.
"""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from oncegate.clock import Clock, SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.lane_operations import Enqueue
from oncegate.lanes import Delivered, Destination, Engine
from oncegate.store import Delivery, Outgoing, Store

NAME: Final = "bench"
PAYLOAD: Final = b"{" + b'"field":"value",' * 31 + b'"last":1}'  # about half a kilobyte


class LaneFigures(Struct, frozen=True):
    """What was measured: rates, and the time from an acknowledgement to the start of its successor."""

    keys: int
    events: int
    enqueued_per_second: float
    delivered_per_second: float
    successor_ms_median: float
    reordered: int


class _Watcher:
    """A destination that only looks: at the order of each key, and at the time between two events of it."""

    def __init__(self, clock: Clock, expected: int) -> None:
        self._clock = clock
        self._expected = expected
        self._last: dict[str, tuple[int, float]] = {}
        self.gaps_ms: list[float] = []
        self.reordered = 0
        self.count = 0
        self.done = asyncio.Event()

    async def deliver(self, delivery: Delivery) -> Delivered:
        """Acknowledges."""
        now = asyncio.get_running_loop().time()
        seq, at = self._last.get(delivery.key, (0, now))
        self.reordered += delivery.seq != seq + 1
        if seq:
            self.gaps_ms.append((now - at) * 1000)
        self._last[delivery.key] = (delivery.seq, now)
        self.count += 1
        if self.count == self._expected:
            self.done.set()
        return Delivered("200")


async def measure_lanes(
    store: Store, *, keys: int, events_each: int, concurrency: int = 256, publishers: int = 256
) -> LaneFigures:
    """Enqueues everything, then delivers everything."""
    clock = SystemClock()
    commits = GroupCommit(store, clock=clock)
    loop, total = asyncio.get_running_loop(), keys * events_each
    try:
        began = loop.time()
        await _enqueue_all(commits, clock, keys, events_each, publishers)
        enqueued = loop.time()
        watcher = _Watcher(clock, total)
        destination = Destination(NAME, watcher.deliver, concurrency=concurrency)
        async with Engine(commits, [destination], clock=clock):
            await watcher.done.wait()
        delivered = loop.time()
    finally:
        commits.close()
    gaps = sorted(watcher.gaps_ms) or [0.0]
    return LaneFigures(
        keys, total, total / (enqueued - began), total / (delivered - enqueued), gaps[len(gaps) // 2],
        watcher.reordered,
    )  # fmt: skip


async def _enqueue_all(commits: GroupCommit, clock: Clock, keys: int, each: int, publishers: int) -> None:
    numbers = iter([(seq, key) for seq in range(each) for key in range(keys)])

    async def publish() -> None:
        for seq, key in numbers:
            event_id = f"{key}-{seq}"
            event = Outgoing(
                NAME,
                "",
                f"key-{key}",
                event_id,
                "order.updated",
                PAYLOAD,
                event_id.encode(),
                clock.wall_ms(),
            )
            await commits.submit_async(Enqueue(event))

    await asyncio.gather(*(publish() for _ in range(publishers)))
