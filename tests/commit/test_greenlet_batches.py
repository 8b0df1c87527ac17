"""Batches inside an event loop: how they are cut, so that tasks and server work at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from oncegate.commit import greenlet_bridge
from oncegate.commit.greenlet_batches import (
    BATCH_MAX,
    BATCH_WHOLE_MAX,
    BATCH_WHOLE_SHORT_MAX,
    LOOK_EVERY_MS,
    GreenletBatches,
    Scarcity,
    waited_ns,
)
from oncegate.commit.operations import ReadEntry, ReadPosition
from oncegate.commit.pending import Pending

pytestmark = pytest.mark.skipif(not greenlet_bridge.AVAILABLE, reason="greenlet is not installed")


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

    def run(self, batch: list[Pending]) -> list[Pending]:
        self.sizes.append(len(batch))
        while not self.is_open:
            greenlet_bridge.pause()
        return batch


class Machine:
    """What a thread would be told of its waits for a processor, by this much of each second."""

    def __init__(self, waited_share: float) -> None:
        self.share = waited_share
        self.now_ms = 0
        self.waited_ns = 0

    def pass_time(self) -> None:
        self.now_ms += LOOK_EVERY_MS
        self.waited_ns += int(LOOK_EVERY_MS * 1_000_000 * self.share)

    def scarcity(self) -> Scarcity:
        return Scarcity(lambda: self.waited_ns, lambda: self.now_ms)


def writers_of(store: SlowStore, machine: Machine | None = None) -> GreenletBatches:
    """Writers on a machine that has processors for all, unless another is given."""
    return GreenletBatches(store.run, (machine or Machine(0.1)).scarcity())


def reads(count: int) -> list[Pending]:
    return [Pending(ReadEntry(b"key")) for _ in range(count)]


async def until_idle(writers: GreenletBatches) -> None:
    async with asyncio.timeout(30):
        while writers.is_busy or writers.waiting:  # noqa: ASYNC110  nobody tells when
            await asyncio.sleep(0)


@in_loop
async def test_what_comes_together_is_committed_in_two_halves() -> None:
    # Given writers of a loop, and a store that is at work
    store = SlowStore()
    writers = writers_of(store)
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
    writers = writers_of(store)
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
    writers = writers_of(store)
    writers.add(reads(100))
    # When a hundred of another kind come
    writers.add([Pending(ReadPosition(b"lane")) for _ in range(100)])
    # Then those are one batch: they take turns with the others already
    assert store.sizes == [50, 50, 100]
    store.is_open = True
    await until_idle(writers)


@in_loop
async def test_no_batch_is_larger_than_its_limit_and_nobody_is_left_over() -> None:
    store = SlowStore()
    store.is_open = True
    writers = writers_of(store)
    # When far more come than one batch may hold
    writers.add(reads(5 * BATCH_MAX))
    await until_idle(writers)
    # Then all are answered in batches of the limit
    assert max(store.sizes) == BATCH_MAX
    assert sum(store.sizes) == 5 * BATCH_MAX


@in_loop
async def test_batches_are_larger_where_processors_are_short() -> None:
    # Given a thread that waits for a processor half of the time
    store, machine = SlowStore(), Machine(0.5)
    writers = writers_of(store, machine)
    machine.pass_time()
    # When as many come as are then worth one batch
    writers.add(reads(BATCH_WHOLE_SHORT_MAX))
    # Then they are not divided
    assert store.sizes == [BATCH_WHOLE_SHORT_MAX]
    store.is_open = True
    await until_idle(writers)
    # When processors are there again
    machine.share = 0.1
    machine.pass_time()
    writers.add(reads(BATCH_WHOLE_SHORT_MAX))
    # Then they are, as before
    await until_idle(writers)
    assert store.sizes[1:] == [BATCH_WHOLE_MAX, BATCH_WHOLE_MAX]


def test_a_moment_says_nothing_of_processors() -> None:
    """Given a wait that was long, but a short time; then nothing follows from it yet."""
    machine = Machine(0.0)
    scarcity = machine.scarcity()
    machine.now_ms, machine.waited_ns = LOOK_EVERY_MS - 1, 10**9
    scarcity.look()
    assert not scarcity.is_there


def test_system_that_does_not_tell_of_waits_has_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncegate.commit.greenlet_batches._WAITED", Path("/not/there"))
    assert waited_ns() == 0


def test_waits_of_this_thread_only_grow() -> None:
    assert waited_ns() <= waited_ns()
