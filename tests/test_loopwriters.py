"""Batches inside an event loop: how they are cut, so that tasks and server work at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from oncegate import suspension
from oncegate.loopwriters import BATCH_MAX, BATCH_WHOLE_MAX, LoopWriters
from oncegate.operations import ReadEntry, ReadPosition
from oncegate.tickets import Ticket

pytestmark = pytest.mark.skipif(not suspension.AVAILABLE, reason="greenlet is not installed")


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a test inside an event loop of its own."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class SlowStore:
    """Notes how large each batch is and answers none until it is let go."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.is_open = False

    def run(self, batch: list[Ticket]) -> None:
        self.sizes.append(len(batch))
        while not self.is_open:
            suspension.pause()


def reads(count: int) -> list[Ticket]:
    return [Ticket(ReadEntry(b"key")) for _ in range(count)]


async def until_idle(writers: LoopWriters) -> None:
    async with asyncio.timeout(30):
        while writers.is_busy or writers.waiting:  # noqa: ASYNC110  nobody tells when
            await asyncio.sleep(0)


@in_loop
async def test_what_comes_together_is_committed_in_two_halves() -> None:
    # Given writers of a loop, and a store that is at work
    store = SlowStore()
    writers = LoopWriters(store.run)
    # When many operations come at once
    writers.add(reads(200))
    # Then two batches are under way, so that one is answered while the other is committed
    assert store.sizes == [100, 100]
    store.is_open = True
    await until_idle(writers)
    assert sum(store.sizes) == 200


@in_loop
async def test_a_few_operations_are_one_batch() -> None:
    store = SlowStore()
    writers = LoopWriters(store.run)
    # When no more come than a statement and a commit are worth
    writers.add(reads(BATCH_WHOLE_MAX))
    # Then they are not divided
    assert store.sizes == [BATCH_WHOLE_MAX]
    store.is_open = True
    await until_idle(writers)


@in_loop
async def test_operations_of_another_kind_count_as_under_way() -> None:
    # Given a hundred operations of one kind under way
    store = SlowStore()
    writers = LoopWriters(store.run)
    writers.add(reads(100))
    # When a hundred of another kind come
    writers.add([Ticket(ReadPosition(b"lane")) for _ in range(100)])
    # Then those are one batch: they take turns with the others already
    assert store.sizes == [50, 50, 100]
    store.is_open = True
    await until_idle(writers)


@in_loop
async def test_no_batch_is_larger_than_its_limit_and_nobody_is_left_over() -> None:
    store = SlowStore()
    store.is_open = True
    writers = LoopWriters(store.run)
    # When far more come than one batch may hold
    writers.add(reads(5 * BATCH_MAX))
    await until_idle(writers)
    # Then all are answered in batches of the limit
    assert max(store.sizes) == BATCH_MAX
    assert sum(store.sizes) == 5 * BATCH_MAX
