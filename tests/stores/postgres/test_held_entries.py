"""An entry that somebody's open transaction holds keeps nobody else waiting (I11, issue 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from oncegate import Gate, Once, Verdict
from oncegate.testing import ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS

LEASE_SECONDS = 30
HELD, REPEATS = {"id": "held"}, 3


@pytest.fixture
def holding(ledger_url: str) -> Iterator[tuple[str, ManualClock]]:
    """A worker has ended its claim in a transaction of its own, and does not commit it."""
    clock = ManualClock()
    inside: list[Any] = []
    with psycopg.connect(ledger_url) as connection, Gate(ledger_url, clock=clock) as gate:

        @gate.handler("bookings", key="{id}", lease=f"{LEASE_SECONDS}s")
        def book(event: dict[str, str], once: Once) -> None:
            connection.execute("SELECT 1")
            once.commit(tx=connection)
            inside.append(event)
            raise KeyboardInterrupt  # a process that stops here for a while

        with pytest.raises(KeyboardInterrupt):
            gate.admit_sync("bookings", HELD)
        assert inside == [HELD]
        yield ledger_url, clock
        connection.rollback()


def arrivals(gate: Gate) -> list[Verdict]:
    """Repeats of the held event among new ones, at once, so that they share batches."""

    @gate.handler("bookings", key="{id}", lease=f"{LEASE_SECONDS}s")
    async def book(event: dict[str, str]) -> None:
        return None

    async def deliver() -> list[Verdict]:
        events = [HELD] * REPEATS + [{"id": f"new-{number}"} for number in range(5)]
        async with asyncio.timeout(DEADLINE_SECONDS):
            answers = await asyncio.gather(*(gate.admit("bookings", event) for event in events))
        return [answer.verdict for answer in answers]

    return asyncio.run(deliver())


@pytest.mark.parametrize("lapsed", [False, True], ids=["within its lease", "past its lease"])
def test_repeats_of_a_held_event_are_busy_and_delay_no_other_key(
    holding: tuple[str, ManualClock], lapsed: bool
) -> None:
    """Given its transaction stays open; then none of those that came with the repeats waits for it."""
    url, clock = holding
    if lapsed:
        clock.advance(LEASE_SECONDS + 1)
    with Gate(url, clock=clock) as gate:
        assert arrivals(gate) == [Verdict.BUSY] * REPEATS + [Verdict.RUN] * 5


def test_a_lone_repeat_of_a_held_event_is_busy(holding: tuple[str, ManualClock]) -> None:
    url, clock = holding
    with Gate(url, clock=clock) as gate:
        gate.handler("bookings", key="{id}")(lambda event: None)
        assert gate.admit_sync("bookings", HELD).verdict is Verdict.BUSY
