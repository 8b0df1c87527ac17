"""Steps that run side by side, as tasks or threads of one handler: none loses what another has done."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from oncegate import NotApplied, Verdict
from oncegate.commit.operations import RecordProgress
from oncegate.gate.surface import UNDECLARED
from tests.support.gates import Ledger, until, wait_for

EVENT = {"id": "N-1"}


class Sorry(Exception):
    """A handler's own failure, after which its event is tried again."""


def test_what_ends_while_another_step_is_recorded_is_recorded_too(ledger: Ledger) -> None:
    """D4: an effect that has returned is not called again because another step was being written."""
    gate, calls, writing = ledger.gate(), [], contextlib.ExitStack()
    commits = gate.engine._context.commits
    pay = gate.downstream("pay", honours_key="7d")

    async def notify():
        calls.append("notify")
        # Given a ledger that somebody else is writing to when this step has ended
        writing.enter_context(commits.transaction())

    async def charge(idempotency_key):
        calls.append("charge")
        return {"id": "c-1"}

    @gate.handler("bookings", key="{id}")
    async def book(event, once):
        notifying = asyncio.create_task(once.step("notify", notify))
        if once.attempt == 1:
            await until(lambda: commits._writers.waiting)
        # When an effect ends while that step's record waits for its turn, and the handler fails
        slot = await once.effect(pay, charge)
        writing.close()
        await notifying
        if once.attempt == 1:
            raise Sorry
        return slot

    async def tell() -> Any:
        with pytest.raises(Sorry):
            await gate.admit("bookings", EVENT)
        return await gate.admit("bookings", EVENT)

    # Then neither is called again
    gate.engine.surface("bookings").declaring.learn(
        "charge", pay
    )  # else it leaves a record before its call
    assert asyncio.run(tell()).value == {"id": "c-1"}
    assert calls == ["notify", "charge"]


def test_a_word_that_nothing_happened_is_kept_beside_another_step(ledger: Ledger) -> None:
    """I9: a step that was not applied is called again, and not left to a person."""
    gate, calls, writing = ledger.gate(), [], contextlib.ExitStack()
    commits = gate.engine._context.commits

    @gate.handler("bookings", key="{id}")
    async def book(event, once):
        refused = asyncio.Event()

        async def mail():
            calls.append("mail")
            if calls.count("mail") == 1:
                await refused.wait()
                raise NotApplied("refused")

        async def notify():
            calls.append("notify")
            writing.enter_context(commits.transaction())

        before = calls.count("mail")
        mailing = asyncio.create_task(once.step("mail", mail))
        await until(lambda: calls.count("mail") > before)
        notifying = asyncio.create_task(once.step("notify", notify))
        if calls.count("mail") == 1:
            # When a step says that nothing happened while another one's record waits for its turn
            await until(lambda: commits._writers.waiting)
        refused.set()
        await asyncio.wait([mailing])
        writing.close()
        await notifying
        await mailing

    async def tell() -> Any:
        with pytest.raises(NotApplied):
            await gate.admit("bookings", EVENT)
        return await gate.admit("bookings", EVENT)

    assert asyncio.run(tell()).verdict is Verdict.RUN
    assert calls == ["mail", "notify", "mail"]


def test_threads_of_one_handler_keep_each_others_steps(ledger: Ledger) -> None:
    """D4: the same for a plain handler with threads of its own."""
    gate, calls, writing = ledger.gate(), [], contextlib.ExitStack()
    commits = gate.engine._context.commits
    pay = gate.downstream("pay", honours_key="7d")
    ended = threading.Event()

    def notify():
        calls.append("notify")
        writing.enter_context(commits.transaction())
        ended.set()

    def charge(idempotency_key):
        calls.append("charge")

    @gate.handler("bookings", key="{id}")
    def book(event, once):
        notifying = threading.Thread(target=once.step, args=("notify", notify))
        notifying.start()
        if once.attempt == 1:
            wait_for(ended)
            asyncio.run(until(lambda: commits._writers.waiting))
        once.effect(pay, charge)
        writing.close()
        notifying.join()
        if once.attempt == 1:
            raise Sorry

    gate.engine.surface("bookings").declaring.learn("charge", pay)
    with pytest.raises(Sorry):
        gate.admit_sync("bookings", EVENT)
    assert gate.admit_sync("bookings", EVENT).verdict is Verdict.RUN
    assert calls == ["notify", "charge"]


def test_a_steps_start_is_written_by_nobody_else(ledger: Ledger) -> None:
    """D4: in another step's record, on its way for longer, it would replace the end of the step."""
    gate, written = ledger.gate(), []

    @gate.handler("bookings", key="{id}")
    def book(event, once):
        flows = [once._effect(UNDECLARED, lambda: None, (), {}, name) for name in ("mail", "notify")]
        for flow in flows:
            request = flow.send(None)
            assert isinstance(request, RecordProgress)
            written.append([step.name for step in request.request.steps])

    gate.admit_sync("bookings", EVENT)
    assert written == [["mail"], ["notify"]]
