"""Engines on either ledger, with a clock moved by hand and destinations that do as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.lane_operations import Enqueue
from oncegate.lanes import Delivered, Destination, Engine
from oncegate.model.backoff import Backoff
from oncegate.store import Delivery, LaneView, Placed, Store
from oncegate.testing import ManualClock
from tests.lanes.lane_site import ENDPOINT, outgoing


class Site:
    """One ledger, one clock, and what arrived at the destination."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.commits = GroupCommit(store, clock=clock)
        self.arrived: list[Delivery] = []
        self.times: list[int] = []
        self.answer: Callable[[Delivery], Any] = lambda delivery: Delivered("200")

    async def deliver(self, delivery: Delivery) -> Any:
        """The destination: notes what comes and answers as the test wants."""
        self.arrived.append(delivery)
        self.times.append(self.clock.ticks_ms())
        answer = self.answer(delivery)
        return await answer if asyncio.iscoroutine(answer) else answer

    def engine(self, *, jitter: float = 0.0, **options: Any) -> Engine:
        """An engine with the one destination."""
        settings = {"backoff": Backoff(attempts_max=8)} | options
        destination = Destination(ENDPOINT, self.deliver, **settings)
        return Engine(self.commits, [destination], clock=self.clock, jitter=lambda: jitter)

    def fill(self, count: int, key: str = "k", first: int = 1, **changes: Any) -> list[Placed]:
        """Enqueues events of one key."""
        numbers = range(first, first + count)
        return [self.commits.submit(Enqueue(outgoing(f"{key}-{n}", key, **changes))) for n in numbers]

    def lane(self, key: str = "k") -> LaneView:
        """Reads a lane."""
        with self.store.look() as reader:
            view = reader.find_lane(ENDPOINT, "", key)
        assert view is not None
        return view

    def seqs(self, key: str = "k") -> list[int]:
        """What arrived of a key."""
        return [delivery.seq for delivery in self.arrived if delivery.key == key]
