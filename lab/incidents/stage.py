"""Virtual time for tasks on a real ledger: arrivals begin and outside calls end when it is their turn.

Nothing sleeps. Time goes on only while nobody works: every delivery that has begun is either finished or
waits for an outside call, which ends at a moment of virtual time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from oncegate.recorder.planning import Planned
from oncegate.testing import ManualClock

DEADLINE_SECONDS: Final = 120.0  # of real time, for one step; far more than any takes
STRIDE_MS: Final = 5_000  # how far time goes at once while calls are under way

Deliver = Callable[[Planned], Awaitable[object]]


class Stage:
    """One play. `each_stride` is done now and then as time goes on, as a background thread would."""

    def __init__(self, clock: ManualClock, each_stride: Callable[[], object] = lambda: None) -> None:
        self._clock = clock
        self._each_stride = each_stride
        self._begin_ms = clock.wall_ms()
        self._calls: list[tuple[int, int, asyncio.Future[None]]] = []
        self._at_work = 0
        self._idle = asyncio.Event()

    @property
    def now_ms(self) -> int:
        """Milliseconds since the beginning."""
        return self._clock.wall_ms() - self._begin_ms

    async def takes(self, seconds: float) -> None:
        """Called by outside systems: returns when so much time has passed."""
        ended = asyncio.get_running_loop().create_future()
        heapq.heappush(self._calls, (self.now_ms + int(seconds * 1000), len(self._calls), ended))
        self._note(-1)
        await ended

    def _note(self, change: int) -> None:
        self._at_work += change
        if self._at_work == 0:
            self._idle.set()

    async def play(self, plan: Sequence[Planned], deliver: Deliver) -> list[Any]:
        """Lets every arrival begin at its moment and waits for all; returns what each came to."""
        tasks = []
        for one in plan:
            await self._go_to(one.at_ms)
            task = asyncio.ensure_future(deliver(one))
            self._at_work += 1
            task.add_done_callback(lambda _: self._note(-1))
            tasks.append(task)
            await self._quiet()
        while self._calls:
            await self._go_to(self._calls[0][0])
        return await asyncio.gather(*tasks, return_exceptions=True)

    async def _go_to(self, at_ms: int) -> None:
        while self._calls and self._calls[0][0] <= at_ms:
            due_ms, _, ended = heapq.heappop(self._calls)
            await self._stride_to(due_ms)
            self._at_work += 1
            ended.set_result(None)
            await self._quiet()
        await self._stride_to(at_ms)

    async def _stride_to(self, at_ms: int) -> None:
        while self.now_ms < at_ms:
            step_ms = min(STRIDE_MS, at_ms - self.now_ms) if self._calls else at_ms - self.now_ms
            self._clock.advance((step_ms + 0.5) / 1000)
            if self._calls:
                await asyncio.to_thread(self._each_stride)

    async def _quiet(self) -> None:
        """Until every delivery is finished or waits for an outside call."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self._at_work:
                self._idle.clear()
                await self._idle.wait()
