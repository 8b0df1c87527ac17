"""Tasks that a handler leaves behind call nothing after its end (I1, A6)."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from oncegate import AsyncOnce, ClaimLost, Gate, UsageError
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import StoreRejected
from oncegate.gate.driver.requests import ThreadCall
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from tests.support.gates import BOOK, Ledger, Style


class Harbour:
    """Sells slots, and can be asked."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.asked = asyncio.Event()

    async def find(self, key: str) -> None:
        self.asked.set()

    async def claim(self, attempt: int, idempotency_key: str) -> str:
        self.calls.append(attempt)
        raise ConnectionError("no answer")


def test_a_task_left_behind_does_not_call_while_the_end_is_recorded(tmp_path: Path) -> None:
    """Given a second attempt that fails beside its effect; when its end is under way to the ledger, then
    the effect is not called any more: the record says that this attempt has called nothing."""
    clock = ManualClock()
    store = SqliteStore(tmp_path / "ledger.db", clock=clock)
    gate = Gate(store=store, clock=clock, commits=GroupCommit(store, clock=clock, inline=False))

    async def scenario() -> list[int]:
        harbour, left = Harbour(), list[asyncio.Task[Any]]()
        ect = gate.downstream("ect", probe=harbour.find, request_life_max="2s")

        @gate.handler("bookings", key="{id}")
        async def book(event: dict[str, str], once: AsyncOnce) -> None:
            effect = asyncio.ensure_future(once.effect(ect, harbour.claim, once.attempt))
            if once.attempt == 1:
                await effect
            left.append(effect)
            await harbour.asked.wait()
            raise ValueError("no crane")

        with pytest.raises(ConnectionError):
            await gate.admit("bookings", {"id": "a"})
        clock.advance(3)
        with pytest.raises(ValueError, match="no crane"):
            await gate.admit("bookings", {"id": "a"})
        with contextlib.suppress(UsageError, ClaimLost, ConnectionError):
            await left[0]
        return harbour.calls

    try:
        assert asyncio.run(scenario()) == [1]
    finally:
        gate.close()


def test_a_statement_that_ends_the_transaction_by_itself_ends_the_block(
    booked_ledger: Ledger, style: Style
) -> None:
    """A5, I2: its error is caught, but neither what follows nor the outcome may stand alone."""
    gate = booked_ledger.gate()
    ends = "INSERT OR ROLLBACK INTO bookings (rowid, equipment) VALUES (1, 'x'), (1, 'y')"

    def plain(event, once):
        with once.commit(outcome="booked") as tx:
            tx.execute(BOOK, ("A", "s-1"))
            with contextlib.suppress(StoreRejected):
                tx.execute(ends, ())
            with contextlib.suppress(UsageError):
                tx.execute(BOOK, ("B", "s-2"))

    async def waits(event, once):
        async with once.commit(outcome="booked") as tx:
            await tx.execute(BOOK, ("A", "s-1"))
            with contextlib.suppress(StoreRejected):
                await tx.execute(ends, ())
            with contextlib.suppress(UsageError):
                await tx.execute(BOOK, ("B", "s-2"))

    gate.handler("bookings", key="{id}")(waits if style.is_async else plain)
    with pytest.raises(UsageError, match="ended the transaction"):
        style.admit(gate, "bookings", {"id": "N-1"})
    assert (booked_ledger.bookings(), booked_ledger.state()) == ([], "retryable")


def test_call_that_its_task_gave_up_before_it_began_never_runs():
    made: list[str] = []
    call = ThreadCall(lambda: made.append("given up"))
    begun = ThreadCall(lambda: made.append("begun"))
    begun()

    assert call.take_start()
    call()

    assert made == ["begun"]
    assert not begun.take_start()
