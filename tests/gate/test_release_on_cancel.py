"""Tasks cancelled while their reservation is on its way: nothing was called, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from oncegate import Admission, Gate, Verdict
from tests.support.gates import LEASE, Ledger, until
from tests.support.loops import leap

EVENT = {"id": "N-1"}


@contextlib.asynccontextmanager
async def kept_waiting(gate: Gate) -> AsyncIterator[asyncio.Task[Admission]]:
    """A task whose reservation waits for its turn; the ledger is free again at the end of the block."""
    commits = gate.engine._context.commits
    with commits.transaction():
        task = asyncio.create_task(gate.admit("bookings", EVENT))
        await until(lambda: commits._writers.waiting)
        yield task


async def cancel_while_reserving(gate: Gate) -> None:
    """Cancels a task before its reservation is granted, which it is then all the same."""
    async with kept_waiting(gate) as task:
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    assert task.cancelled()


def register(gate: Gate, runs: list[Any], *, opaque: bool, **options: Any) -> None:
    async def book(event):
        runs.append(event)
        return "booked"

    async def book_once(event, once):
        runs.append(once.attempt)
        return "booked"

    gate.handler("bookings", key="{id}", lease=LEASE, **options)(book if opaque else book_once)
    gate.check_surfaces()


@pytest.mark.parametrize("opaque", [True, False], ids=["opaque", "takes once"])
async def test_a_claim_that_nobody_waits_for_is_given_back(ledger: Ledger, opaque: bool) -> None:
    """I9: nothing was called, so that the next arrival runs, at once, as the first attempt."""
    gate = ledger.gate()
    runs: list[Any] = []
    register(gate, runs, opaque=opaque, attempts_max=1)

    await cancel_while_reserving(gate)

    assert (ledger.state(), ledger.attempt(), runs) == ("retryable", 0, [])
    answer = await gate.admit("bookings", EVENT)
    assert (answer.verdict, answer.value, len(runs)) == (Verdict.RUN, "booked", 1)
    assert ledger.attempt() == 1


async def test_a_claim_granted_in_the_turn_of_the_cancellation_is_given_back(ledger: Ledger) -> None:
    """The answer was told, but the task is woken by the cancellation."""
    gate = ledger.gate()
    runs: list[Any] = []
    register(gate, runs, opaque=True)
    task = asyncio.create_task(gate.admit("bookings", EVENT))
    await asyncio.sleep(0)  # it has asked, and is answered in the next turn
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.wait([task])

    assert task.cancelled()
    assert (ledger.state(), runs) == ("retryable", [])
    assert (await gate.admit("bookings", EVENT)).verdict is Verdict.RUN


async def test_a_cancelled_task_does_not_wait_for_a_ledger_that_does_not_answer(ledger: Ledger) -> None:
    """A caller's deadline holds; the claim is given back when the answer comes after all."""
    gate = ledger.gate()
    runs: list[Any] = []
    register(gate, runs, opaque=True)
    async with kept_waiting(gate) as task:
        task.cancel()
        await asyncio.sleep(0)
        leap(timedelta(seconds=1))
        await asyncio.wait([task])
        assert task.cancelled()
    await until(lambda: ledger.states() == ["retryable"])
    assert not runs


async def test_a_task_cancelled_again_and_again_leaves_no_claim(ledger: Ledger) -> None:
    """Some libraries cancel at every turn until the task has ended."""
    gate = ledger.gate()
    runs: list[Any] = []
    register(gate, runs, opaque=True)
    async with kept_waiting(gate) as task:
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
    await until(lambda: ledger.states() == ["retryable"])
    assert not runs


def test_a_loop_that_ends_gives_back_first(ledger: Ledger) -> None:
    """A server that is stopped leaves nothing to a person that it has not begun."""
    gate = ledger.gate()
    runs: list[Any] = []
    register(gate, runs, opaque=True)

    async def ends() -> None:
        asyncio.create_task(gate.admit("bookings", EVENT))  # noqa: RUF006  the loop cancels it
        await asyncio.sleep(0)

    asyncio.run(ends())
    assert (ledger.state(), runs) == ("retryable", [])


async def test_waiting_for_a_key_can_be_cancelled_as_well(ledger: Ledger) -> None:
    """A waiter's question that is granted when nobody waits any more is given back, too."""
    gate, go_on = ledger.gate(), asyncio.Event()
    runs: list[Any] = []

    @gate.handler("bookings", key="{id}", lease=LEASE, on_busy="wait")
    async def book(event, once):
        runs.append(once.attempt)
        await go_on.wait()
        if len(runs) == 1:
            raise RuntimeError("no luck")

    first = asyncio.create_task(gate.admit("bookings", EVENT))
    await until(lambda: runs)
    second = asyncio.create_task(gate.admit("bookings", EVENT))
    with _cancelled_at_question(gate, second, lambda: ledger.state() == "retryable"):
        go_on.set()
        await asyncio.wait([first, second])
    assert isinstance(first.exception(), RuntimeError)
    assert second.cancelled()
    assert (ledger.state(), ledger.attempt(), runs) == ("retryable", 1, [1])


@contextlib.contextmanager
def _cancelled_at_question(gate: Gate, task: asyncio.Task[Any], when: Callable[[], bool]) -> Iterator[None]:
    """Cancels a task in the turn after it has asked something, as soon as a condition is true."""
    driver, ask = gate.engine.driver, gate.engine.driver._ask

    def asked(operation: Any) -> Any:
        found = ask(operation)
        if asyncio.current_task() is task and when():
            task.cancel()
        return found

    gate.engine._context.commits._gathered_last = 0
    driver._ask = asked
    yield
    driver._ask = ask


async def test_what_an_earlier_attempt_left_open_stays_open(ledger: Ledger) -> None:
    """A4: a recovery that is given back says nothing about the call that was interrupted."""
    gate = ledger.gate()
    runs: list[Any] = []
    register(gate, runs, opaque=True)
    # Given an opaque call that was interrupted
    other = ledger.gate()

    @other.handler("bookings", key="{id}", lease=LEASE)
    def dies(event):
        runs.append(event)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        other.admit_sync("bookings", EVENT)
    ledger.lapse()
    # When its recovery is cancelled before it is granted
    await cancel_while_reserving(gate)
    # Then it is still a person who decides
    with contextlib.suppress(Exception):
        await gate.admit("bookings", EVENT)
    assert (ledger.state(), len(runs)) == ("unknown", 1)
