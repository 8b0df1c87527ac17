"""Cancelled tasks and forked processes: what is left behind is recorded, and nothing runs twice."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oncegate import Admission, Gate, Verdict
from oncegate.testing import run_forked
from tests.support.gates import Ledger, Style, Terminal, until

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}


async def cancel_inside(gate: Gate, inside: asyncio.Event) -> None:
    """Admits the event and cancels the task while its handler waits."""
    task = asyncio.create_task(gate.admit("bookings", EVENT))
    await inside.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def story(tell: Callable[[asyncio.Event, asyncio.Event], Awaitable[Any]]) -> Any:
    """Runs a story with two events that belong to its loop: one to be set, one that never is."""

    async def run() -> Any:
        return await tell(asyncio.Event(), asyncio.Event())

    return asyncio.run(run())


def test_a_cancelled_opaque_handler_is_left_to_a_person(ledger: Ledger) -> None:
    """A client that goes away says nothing about what the handler has done."""
    gate, runs = ledger.gate(), []

    async def tell(inside: asyncio.Event, never: asyncio.Event) -> Admission:
        @gate.handler("bookings", key="{id}")
        async def book(event):
            runs.append(event)
            inside.set()
            await never.wait()

        await cancel_inside(gate, inside)
        return await gate.admit("bookings", EVENT)

    assert story(tell).verdict is Verdict.HOLD
    assert (len(runs), ledger.state()) == (1, "unknown")


def test_a_cancelled_handler_with_steps_goes_on_where_it_was(ledger: Ledger) -> None:
    """Finished steps are kept; a wait between steps is nothing to be in doubt about."""
    gate, terminal = ledger.gate(), Terminal(honours_key=True)
    ect = gate.downstream("ect", honours_key="7d")

    async def tell(inside: asyncio.Event, never: asyncio.Event) -> Admission:
        @gate.handler("bookings", key="{id}")
        async def book(event, once):
            slot = await once.effect(ect, terminal.claim, event["equipment"])
            if once.attempt == 1:
                inside.set()
                await never.wait()
            return slot["id"]

        await cancel_inside(gate, inside)
        return await gate.admit("bookings", EVENT)

    answer = story(tell)
    assert (answer.verdict, answer.value) == (Verdict.RUN, "MSKU1234565-1")
    assert len(terminal.keys) == 1


def test_a_step_cancelled_in_the_middle_is_left_to_a_person(ledger: Ledger) -> None:
    """A4: an unrepeatable call that was cut off may have happened."""
    gate, calls = ledger.gate(), []

    async def tell(inside: asyncio.Event, never: asyncio.Event) -> Admission:
        async def notify():
            calls.append("notify")
            inside.set()
            await never.wait()

        @gate.handler("bookings", key="{id}")
        async def book(event, once):
            await once.step("notify", notify)

        await cancel_inside(gate, inside)
        return await gate.admit("bookings", EVENT)

    assert story(tell).verdict is Verdict.HOLD
    assert calls == ["notify"]


def test_an_arrival_cancelled_while_its_outcome_is_committed_stays_committed(ledger: Ledger) -> None:
    """The outcome is on its way; a caller that goes away does not call it back."""
    gate, runs, writing = ledger.gate(), [], contextlib.ExitStack()
    commits = gate.engine._context.commits

    @gate.handler("bookings", key="{id}")
    async def book(event):
        runs.append(event)
        # Given a ledger that somebody else is writing to when the handler returns
        writing.enter_context(commits.transaction())
        return "booked"

    async def tell() -> Admission:
        task = asyncio.create_task(gate.admit("bookings", EVENT))
        await until(lambda: runs and commits._writers.waiting)
        # When the task is cancelled while its settlement waits for its turn
        task.cancel()
        await asyncio.sleep(0)
        writing.close()
        await asyncio.wait([task])
        assert task.cancelled()
        return await gate.admit("bookings", EVENT)

    # Then the outcome stands
    answer = asyncio.run(tell())
    assert (answer.verdict, answer.value) == (Verdict.REPLAY, "booked")
    assert len(runs) == 1


@pytest.mark.parametrize("used_before", [True, False], ids=["used before", "fresh"])
def test_a_gate_can_be_used_after_a_fork(ledger: Ledger, style: Style, used_before: bool) -> None:
    """The child has threads and connections of its own, and what the parent settled is a replay to it."""
    gate, terminal = ledger.gate(), Terminal()
    ect = gate.downstream("ect", probe=lambda key: None)

    def body(event, once):
        yield once.effect(ect, terminal.claim, "X")
        return any(thread.name == "oncegate-leases" for thread in threading.enumerate())

    style.register(gate, "bookings", body)
    if used_before:
        style.admit(gate, "bookings", EVENT)

    def in_child() -> list[Any]:
        answers = [style.admit(gate, "bookings", event) for event in (EVENT, {"id": "child"}, EVENT)]
        return [[answer.verdict.value, answer.value] for answer in answers]

    code, answers = run_forked(in_child)
    assert code == 0
    # Every claim of the child is looked after by a keeper that lives in the child
    first = "replay" if used_before else "run"
    assert answers == [[first, True], ["run", True], ["replay", True]]
    # And the parent goes on
    assert style.admit(gate, "bookings", {"id": "child"}).verdict is Verdict.REPLAY
    assert style.admit(gate, "bookings", {"id": "parent"}).verdict is Verdict.RUN
