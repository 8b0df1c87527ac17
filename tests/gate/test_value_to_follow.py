"""Between a commit block and the handler's return: the value is on its way, and repeats wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from oncegate import Admission, Verdict
from oncegate.store.incarnations import Sight
from tests.support.gates import BOOK, LEASE, Ledger, Style, running, until, wait_for

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}


def test_a_repeat_before_the_handler_has_returned_is_busy(booked_ledger: Ledger, style: Style) -> None:
    """The first one is still at work; what it did not return yet is not told as None."""
    gate, early = booked_ledger.gate(), []

    def body(event, once):
        yield style.block(once, (BOOK, ("A", "s-1")), resource="s-1")
        with running(lambda: asyncio.run(gate.admit("bookings", EVENT))) as answers:
            pass
        early.extend(answers)
        return "booked"

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).value == "booked"
    assert [answer.verdict for answer in early] == [Verdict.BUSY]
    assert early[0].retry_after_seconds > 0
    replay = style.admit(gate, "bookings", EVENT)
    assert (replay.verdict, replay.value, replay.resource) == (Verdict.REPLAY, "booked", "s-1")


def test_a_repeat_that_may_wait_gets_the_value(
    booked_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """on_busy="wait": the answer is the first one's, whole."""
    gate = booked_ledger.gate()
    committed, go_on, returned = threading.Event(), threading.Event(), threading.Event()

    @gate.handler("bookings", key="{id}", on_busy="wait", lease=LEASE)
    def book(event, once):
        with once.commit(resource="s-1") as tx:
            tx.execute(BOOK, ("A", "s-1"))
        committed.set()
        wait_for(go_on)
        return "booked"

    def first() -> Admission:
        answer = gate.admit_sync("bookings", EVENT)
        returned.set()
        return answer

    def repeat() -> Admission:
        wait_for(committed)
        return gate.admit_sync("bookings", EVENT)

    def pause(seconds: float) -> None:
        go_on.set()  # the first one returns only once the second one waits
        wait_for(returned)

    monkeypatch.setattr(gate.engine._context.clock, "pause", pause)
    with running(first, repeat) as answers:
        pass
    assert [(answer.verdict, answer.value, answer.resource) for answer in answers] == [
        (Verdict.RUN, "booked", "s-1"),
        (Verdict.REPLAY, "booked", "s-1"),
    ]


def test_a_handler_that_fails_after_its_block_lets_repeats_go(booked_ledger: Ledger, style: Style) -> None:
    """No value follows any more: what was committed is told without one."""
    gate = booked_ledger.gate()

    def body(event, once):
        yield style.block(once, (BOOK, ("A", "s-1")))
        raise RuntimeError("no luck")

    style.register(gate, "bookings", body)
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", EVENT)
    assert not gate.engine._context.value_follows
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.REPLAY


def test_no_value_is_waited_for_under_the_numbers_of_another_ledger(
    booked_ledger: Ledger, style: Style
) -> None:
    """A ledger that went back gives numbers out again: their new owners wait for nothing (I23)."""
    gate, early = booked_ledger.gate(), []

    def body(event, once):
        yield style.block(once, (BOOK, ("A", "s-1")))
        with contextlib.closing(gate.engine.store.connect()) as session:
            gate.engine.store.incarnations.check(Sight("another", 0), lambda: session)
        with running(lambda: asyncio.run(gate.admit("bookings", EVENT))) as answers:
            pass
        early.extend(answers)
        return "booked"

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).value == "booked"
    assert [answer.verdict for answer in early] == [Verdict.REPLAY]


@pytest.mark.parametrize("when", ["inside the block", "after the block"])
async def test_a_thread_whose_task_was_cancelled_still_gives_its_value(
    booked_ledger: Ledger, when: str
) -> None:
    """The caller went away, the handler did not: what it returns is the outcome."""
    gate = booked_ledger.gate()
    reached, go_on = threading.Event(), threading.Event()

    def stop(where: str) -> None:
        if where == when:
            reached.set()
            wait_for(go_on)

    @gate.handler("bookings", key="{id}", lease=LEASE)
    def book(event, once):
        with once.commit(resource="s-1") as tx:
            tx.execute("SELECT 1")
            stop("inside the block")
        stop("after the block")
        return "booked"

    task = asyncio.create_task(gate.admit("bookings", EVENT))
    await until(reached.is_set)
    # When its task is cancelled while the thread goes on
    task.cancel()
    if when == "inside the block":
        await asyncio.sleep(0)  # its failure waits for the transaction that is open
    else:
        await asyncio.wait([task])
        assert (await gate.admit("bookings", EVENT)).verdict is Verdict.BUSY
    go_on.set()
    await asyncio.wait([task])
    assert task.cancelled()
    await until(lambda: not gate.engine._context.value_follows)
    # Then its value is there for every repeat, in any process
    other = booked_ledger.gate()
    Style("plain").register(other, "bookings", lambda event, once: "never")
    answer = other.admit_sync("bookings", EVENT)
    assert (answer.verdict, answer.value, answer.resource) == (Verdict.REPLAY, "booked", "s-1")
