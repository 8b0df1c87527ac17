"""A forgotten `await` in an async handler is told, and nothing is recorded as done that never began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from oncegate import Gate, UsageError, Verdict
from tests.support.gates import BOOK, Ledger

# Python's own word about the same mistake, which comes besides ours.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
EVENT = {"id": "N-1", "equipment": "MSKU1234565"}
ROW = ("MSKU1234565", "s-1")


class Calls:
    """A downstream that counts."""

    def __init__(self, gate: Gate) -> None:
        self.at = gate.downstream("terminal", honours_key="7d")
        self.count = 0

    async def sell(self, idempotency_key: str = "") -> str:
        """Counts a sale."""
        self.count += 1
        return "s-1"


FORGETTING: dict[str, Callable[[Any, Calls], Coroutine[Any, Any, Any]]] = {
    "once.effect": lambda once, calls: once.effect(calls.at, calls.sell),
    "once.step": lambda once, calls: once.step("sell", calls.sell),
    "once.write": lambda once, calls: once.write("book", [(BOOK, ROW)]),
}


@pytest.mark.parametrize("what", list(FORGETTING))
async def test_what_was_not_awaited_is_told_before_the_outcome_is_recorded(
    booked_ledger: Ledger, what: str
) -> None:
    # Given a handler that forgets to await
    gate = booked_ledger.gate()
    calls = Calls(gate)

    @gate.handler("bookings", key="{id}")
    async def book(event: Any, once: Any) -> int:
        FORGETTING[what](once, calls)  # type: ignore[unused-coroutine]  # that is the mistake
        return 1

    # When an event comes
    with pytest.raises(UsageError, match=rf"{what}\(…\) was not awaited, so nothing of it was run"):
        await gate.admit("bookings", EVENT)
    # Then nothing has happened, and the entry does not say so either
    assert (calls.count, booked_ledger.bookings()) == (0, [])
    assert booked_ledger.state() == "retryable"
    assert "was not awaited" in booked_ledger.reason()


async def test_what_is_returned_instead_of_awaited_is_told_too(ledger: Ledger) -> None:
    gate = ledger.gate()
    calls = Calls(gate)

    @gate.handler("bookings", key="{id}")
    async def book(event: Any, once: Any) -> Any:
        return once.effect(calls.at, calls.sell)

    with pytest.raises(UsageError, match="was not awaited"):
        await gate.admit("bookings", EVENT)
    assert (calls.count, ledger.state()) == (0, "retryable")


async def test_a_task_that_the_handler_did_not_wait_for_is_told(ledger: Ledger) -> None:
    # Given a handler that leaves its effect to a task
    gate = ledger.gate()
    calls, tasks = Calls(gate), list[asyncio.Task[Any]]()

    @gate.handler("bookings", key="{id}")
    async def book(event: Any, once: Any) -> int:
        tasks.append(asyncio.ensure_future(once.effect(calls.at, calls.sell)))
        return 1

    # When an event comes, then the handler is told, and the task calls nothing
    with pytest.raises(UsageError, match=r"once.effect\(…\) was not awaited"):
        await gate.admit("bookings", EVENT)
    with pytest.raises(UsageError, match="the handler has ended"):
        await tasks[0]
    assert (calls.count, ledger.state()) == (0, "retryable")


async def test_an_effect_under_way_keeps_the_handler_from_committing(booked_ledger: Ledger) -> None:
    # Given an effect that has begun and not ended when the handler opens its commit block
    gate = booked_ledger.gate()
    calls, answered = Calls(gate), asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def sell_slowly(idempotency_key: str) -> str:
        await answered.wait()
        return await calls.sell(idempotency_key)

    @gate.handler("bookings", key="{id}")
    async def book(event: Any, once: Any) -> None:
        tasks.append(asyncio.ensure_future(once.effect(calls.at, sell_slowly)))
        await asyncio.sleep(0)
        async with once.commit() as tx:
            await tx.execute(BOOK, ROW)

    # When an event comes
    with pytest.raises(UsageError, match="has not ended yet"):
        await gate.admit("bookings", EVENT)
    answered.set()
    await tasks[0]
    # Then nothing was committed without the effect's record
    assert (booked_ledger.bookings(), booked_ledger.state()) == ([], "retryable")


async def test_a_statement_that_was_not_awaited_undoes_its_block(booked_ledger: Ledger) -> None:
    gate = booked_ledger.gate()

    @gate.handler("bookings", key="{id}")
    async def book(event: Any, once: Any) -> None:
        async with once.commit() as tx:
            await tx.execute(BOOK, ROW)
            tx.execute(BOOK, ROW)

    with pytest.raises(UsageError, match=r"tx.execute\(…\) was not awaited"):
        await gate.admit("bookings", EVENT)
    assert (booked_ledger.bookings(), booked_ledger.state()) == ([], "retryable")


async def test_a_statement_of_a_same_database_handler_that_was_not_awaited(booked_ledger: Ledger) -> None:
    gate = booked_ledger.gate()

    @gate.handler("bookings", key="{id}", same_database=True)
    async def book(event: Any, once: Any) -> None:
        once.tx.execute(BOOK, ROW)

    with pytest.raises(UsageError, match=r"tx.execute\(…\) was not awaited"):
        await gate.admit("bookings", EVENT)
    assert (booked_ledger.bookings(), booked_ledger.state()) == ([], "retryable")


async def test_effects_side_by_side_that_are_awaited_are_fine(ledger: Ledger) -> None:
    gate = ledger.gate()
    calls = Calls(gate)

    @gate.handler("bookings", key="{id}")
    async def book(event: Any, once: Any) -> list[str]:
        both = (once.effect(calls.at, calls.sell, name=name) for name in ("one", "two"))
        return list(await asyncio.gather(*both))

    admission = await gate.admit("bookings", EVENT)
    assert (admission.verdict, admission.value, calls.count) == (Verdict.RUN, ["s-1", "s-1"], 2)


async def test_what_has_ended_is_not_kept(booked_ledger: Ledger) -> None:
    """A transaction of a hundred thousand statements keeps none of them in mind."""
    gate = booked_ledger.gate()
    kept: list[int] = []

    @gate.handler("bookings", key="{id}")
    async def book(event: Any, once: Any) -> None:
        async with once.commit() as tx:
            for number in range(3):
                await tx.execute(BOOK, (f"MSKU{number}", "s-1"))
                kept.append(len(tx._transaction.given))

    await gate.admit("bookings", EVENT)
    assert kept == [0, 0, 0]
