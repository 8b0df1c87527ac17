"""Who waits for the store: told in the order in which they began to wait, and each of them once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from oncegate.commit.operations import Operation
from oncegate.commit.pending import LoopBatch, Semaphore, TaskPending, TimeoutWatcher
from oncegate.errors import StoreUnknown
from oncegate.testing.simulation import VirtualLoop

WAITING = 40


async def _wait(number: int, asked: asyncio.Future[Any], told: list[int]) -> None:
    with suppress(StoreUnknown):
        await asked
    told.append(number)


def test_whoever_waits_longest_for_an_answer_is_told_first() -> None:
    # Given many who ask one after another, and a store that answers nobody
    loop, told = VirtualLoop(), []  # type: tuple[VirtualLoop, list[int]]
    watch = TimeoutWatcher(cast("asyncio.AbstractEventLoop", loop), 5.0, 30.0, 1, 1)
    for number in range(WAITING):
        gathering = LoopBatch(watch)
        watch.add(gathering)
        loop.create_task(_wait(number, gathering.add(Operation(None)), told))
    # When they have waited too long
    loop.run_until(lambda: len(told) == WAITING, 60.0)
    # Then they are told in their order: the same run is the same every time
    assert told == list(range(WAITING))


def test_commits_in_a_loop_leave_it_time_for_others() -> None:
    """In one turn so many of them, and none that begins too late; in the next turn again."""

    async def ask(times_ms: list[int]) -> list[bool]:
        loop = asyncio.get_running_loop()
        watch, next_turn = TimeoutWatcher(loop, 5.0, 30.0, 3, 4), loop.create_future()
        first = [watch.may_commit_here(now_ms) for now_ms in times_ms]
        loop.call_soon(next_turn.set_result, None)
        await next_turn
        return [*first, watch.may_commit_here(100)]

    assert asyncio.run(ask([10, 10, 10, 10])) == [True, True, True, False, True]
    assert asyncio.run(ask([10, 13, 14])) == [True, True, False, True]


def _gathered(count: int) -> tuple[LoopBatch, list[TaskPending], list[asyncio.Future[Any]]]:
    gathering = LoopBatch(TimeoutWatcher(cast("asyncio.AbstractEventLoop", VirtualLoop()), 5.0, 30.0, 1, 1))
    futures = []
    for number in range(count):
        futures.append(gathering.add(Operation(None)))
        gathering.tickets[-1].answer = number
    return gathering, cast("list[TaskPending]", list(gathering.tickets)), futures


def test_an_answer_that_comes_after_the_limit_changes_nothing() -> None:
    """Given a task that timed out, when the answer comes after all, then the error stays."""
    gathering, tickets, (future,) = _gathered(1)

    gathering.fail_late(StoreUnknown("no answer"))
    tickets[0].deliver()

    assert isinstance(future.exception(), StoreUnknown)


def test_the_limit_of_a_batch_is_nothing_to_those_who_were_answered() -> None:
    """Given two who asked together and one answer, when time is up, then only the other has an error."""
    gathering, tickets, (first, second) = _gathered(2)

    tickets[0].deliver()
    gathering.fail_late(StoreUnknown("no answer"))

    assert first.result() == 0
    assert isinstance(second.exception(), StoreUnknown)


def test_only_so_many_are_in_at_a_time() -> None:
    places = Semaphore(2)
    held: list[None] = []
    assert places.take(held)
    assert places.take(held, 0.001)
    # When all places are taken, then nobody comes in, at once or within a time
    assert not places.take(held)
    assert not places.take(held, 0.001)
    # Until one is given back
    places.give_back(None)
    assert places.take(held)
    assert len(held) == 3
