"""Same-database handlers: reservation, mutation and outcome are one transaction."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncegate import Failed, Gate, UsageError, Verdict
from oncegate.clock import from_wall_ms
from oncegate.crashpoints import CrashPoints
from oncegate.errors import StoreRejected
from oncegate.maintenance.reconciler import Reconciler
from oncegate.store import LogKind
from oncegate.testing import CrashReached
from tests.support.gates import BOOK, DeadAfter, Ledger, Style, Terminal, running

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}
BOOKED = [("MSKU1234565", "s-1")]


def booking(
    ledger: Ledger,
    style: Style,
    before_return: Any = lambda: None,
    crashpoints: CrashPoints | None = None,
    **options: Any,
) -> Gate:
    """A process whose handler books in the ledger's own database."""
    gate = ledger.gate(crashpoints)

    def body(event, once):
        yield once.tx.execute(BOOK, (event["equipment"], "s-1"))
        before_return()
        return {"attempt": once.attempt}

    style.register(gate, "bookings", body, same_database=True, **options)
    return gate


def test_everything_is_committed_at_once(booked_ledger: Ledger, style: Style) -> None:
    """E4: while the handler runs nobody sees anything, afterwards everybody sees everything."""
    seen: list[Any] = []

    def look() -> None:
        seen.append((booked_ledger.bookings(), booked_ledger.states()))

    gate = booking(booked_ledger, style, look)
    answer = style.admit(gate, "bookings", EVENT)
    assert seen == [([], [])]
    assert (booked_ledger.bookings(), booked_ledger.state()) == (BOOKED, "committed")
    assert (answer.verdict, answer.value) == (Verdict.RUN, {"attempt": 1})
    assert booked_ledger.log_kinds() == [LogKind.COMMITTED]


def test_a_repeat_is_a_replay_and_writes_nothing(booked_ledger: Ledger, style: Style) -> None:
    """From the process that ran it and from another one."""
    gate = booking(booked_ledger, style)
    first = style.admit(gate, "bookings", EVENT)
    for again in (gate, booking(booked_ledger, style)):
        replay = style.admit(again, "bookings", EVENT)
        assert (replay.verdict, replay.value) == (Verdict.REPLAY, first.value)
    assert booked_ledger.bookings() == BOOKED


@pytest.mark.parametrize("point", ["reserve.before", "reserve.after", "settle.before", "commit.before"])
def test_a_crash_leaves_nothing_and_the_event_runs_again(
    booked_ledger: Ledger, style: Style, point: str
) -> None:
    """E4, I6: rolled back as a whole; no lease to wait for, no question to ask."""
    with pytest.raises(CrashReached):
        style.admit(booking(booked_ledger, style, crashpoints=DeadAfter(point)), "bookings", EVENT)
    assert (booked_ledger.bookings(), booked_ledger.states()) == ([], [])
    answer = style.admit(booking(booked_ledger, style), "bookings", EVENT)
    assert (answer.verdict, answer.value) == (Verdict.RUN, {"attempt": 1})
    assert booked_ledger.bookings() == BOOKED


@pytest.mark.parametrize("point", ["commit.after", "settle.after"])
def test_a_crash_after_the_commit_leaves_a_replay(booked_ledger: Ledger, style: Style, point: str) -> None:
    """The caller never heard of it; the next arrival does."""
    with pytest.raises(CrashReached):
        style.admit(booking(booked_ledger, style, crashpoints=DeadAfter(point)), "bookings", EVENT)
    assert style.admit(booking(booked_ledger, style), "bookings", EVENT).verdict is Verdict.REPLAY
    assert booked_ledger.bookings() == BOOKED


class Unlucky:
    """Fails so many times."""

    def __init__(self, times: int, error: type[Exception] = RuntimeError) -> None:
        self.left = times
        self.error = error

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            raise self.error("no luck")


def test_a_failure_undoes_the_write_and_is_recorded(booked_ledger: Ledger, style: Style) -> None:
    """All or nothing for the mutation; the failure itself is on record, with its reason."""
    gate = booking(booked_ledger, style, Unlucky(1))
    with pytest.raises(RuntimeError, match="no luck"):
        style.admit(gate, "bookings", EVENT)
    assert booked_ledger.bookings() == []
    assert (booked_ledger.state(), booked_ledger.reason()) == ("retryable", "RuntimeError: no luck")
    # And the next attempt counts on
    assert style.admit(gate, "bookings", EVENT).value == {"attempt": 2}
    assert booked_ledger.bookings() == BOOKED
    assert booked_ledger.log_kinds() == [LogKind.RETRYABLE, LogKind.TAKEN_UP, LogKind.COMMITTED]


def test_attempts_are_counted_up_to_the_limit(booked_ledger: Ledger, style: Style) -> None:
    """I18: a rollback undoes the reservation, not the count of what was tried."""
    gate = booking(booked_ledger, style, Unlucky(99), attempts_max=3)
    for attempt in (1, 2, 3):
        with pytest.raises(RuntimeError):
            style.admit(gate, "bookings", EVENT)
        assert booked_ledger.attempt() == attempt
    assert booked_ledger.state() == "held"
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.HOLD
    assert booked_ledger.bookings() == []


def test_a_final_failure_is_final(booked_ledger: Ledger, style: Style) -> None:
    """Recorded, replayed, never run again."""
    gate = booking(booked_ledger, style, Unlucky(1, Failed))
    with pytest.raises(Failed):
        style.admit(gate, "bookings", EVENT)
    for again in (gate, booking(booked_ledger, style)):
        answer = style.admit(again, "bookings", EVENT)
        assert (answer.verdict, answer.error) == (Verdict.REPLAY, "no luck")
    assert booked_ledger.bookings() == []


def test_a_refused_statement_is_recorded_as_a_failure(booked_ledger: Ledger, style: Style) -> None:
    """A statement of the user's own that fails is a failed attempt, not a key that stays in flight."""
    booked_ledger.rows(BOOK, ("MSKU1234565", "somebody else's"))
    gate = booking(booked_ledger, style)
    with pytest.raises(StoreRejected):
        style.admit(gate, "bookings", EVENT)
    assert booked_ledger.state() == "retryable"
    booked_ledger.rows("DELETE FROM bookings")
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.RUN


def test_a_handler_that_takes_only_the_event_may_be_registered_too(
    booked_ledger: Ledger, style: Style
) -> None:
    """It runs inside the transaction, though it cannot reach it; a failure may be tried again."""
    gate, runs, unlucky = booked_ledger.gate(), [], Unlucky(1)

    def body(event):
        runs.append(event)
        unlucky()
        return "done"

    style.register(gate, "bookings", body, same_database=True)
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", EVENT)
    assert [style.admit(gate, "bookings", EVENT).verdict for _ in range(2)] == [Verdict.RUN, Verdict.REPLAY]
    assert len(runs) == 2


def test_other_content_conflicts_and_malformed_input_is_quarantined(
    booked_ledger: Ledger, style: Style
) -> None:
    """The verdicts are the same as elsewhere."""
    gate = booking(booked_ledger, style)
    style.admit(gate, "bookings", EVENT)
    assert style.admit(gate, "bookings", {**EVENT, "x": 1}).verdict is Verdict.CONFLICT
    assert style.admit(gate, "bookings", {"equipment": "Y"}).verdict is Verdict.QUARANTINE
    assert booked_ledger.bookings() == BOOKED
    assert booked_ledger.states() == ["committed", "quarantined", "quarantined"]
    # And what was kept runs once when a person lets it, under a key of its own
    other = {"id": "N-1", "equipment": "OTHER"}
    assert [style.admit(gate, "bookings", other).verdict for _ in range(2)] == [Verdict.CONFLICT] * 2
    gate.people.release(4, actor="Ada", reason="both are meant")
    booked_ledger.clock.advance(60)
    for _ in range(2):
        reconciler = Reconciler(gate)
        asyncio.run(reconciler.run_once_async()) if style.is_async else reconciler.run_once()
    assert booked_ledger.bookings() == [*BOOKED, ("OTHER", "s-1")]


def test_concurrent_arrivals_of_one_key_run_once(booked_ledger: Ledger, style: Style) -> None:
    """They follow one another; whoever comes second finds the outcome."""
    gates = [booking(booked_ledger, style) for _ in range(2)]
    arrivals = [lambda gate=gate: style.admit(gate, "bookings", EVENT) for gate in gates * 3]
    with running(*arrivals) as answers:
        pass
    verdicts = sorted(answer.verdict.value for answer in answers)
    assert verdicts == ["replay"] * 5 + ["run"]
    assert booked_ledger.bookings() == BOOKED


def test_outside_calls_and_other_commits_are_refused(booked_ledger: Ledger, style: Style) -> None:
    """The reservation is not durable before the end, so nothing outside may happen before it."""
    gate, terminal, refused = booked_ledger.gate(), Terminal(), []
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        attempts = [
            lambda: once.effect(ect, style.function(terminal.claim), "X"),
            lambda: once.step("notify", style.function(terminal.claim), "X"),
            lambda: once.write("more", [(BOOK, ("B", "s-2"))]),
            lambda: once.commit(writes=[(BOOK, ("C", "s-3"))]),
        ]
        for attempt in attempts:
            try:
                yield attempt()
            except UsageError as error:
                refused.append(error)
        yield once.tx.execute(BOOK, (event["equipment"], "s-1"))

    style.register(gate, "bookings", body, same_database=True)
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.RUN
    assert len(refused) == 4
    assert not terminal.keys
    assert booked_ledger.bookings() == BOOKED


def test_once_tx_is_refused_elsewhere(booked_ledger: Ledger, style: Style) -> None:
    """A handler that is not one transaction is told what to use instead."""
    gate = booked_ledger.gate()

    def body(event, once):
        yield once.tx.execute(BOOK, ("X", "s-1"))

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match=r"use once\.commit"):
        style.admit(gate, "bookings", EVENT)


def test_a_cancelled_task_undoes_its_transaction(booked_ledger: Ledger) -> None:
    """A client that goes away in the middle leaves no write and no lock."""
    gate = booked_ledger.gate()

    async def story() -> Any:
        inside, never = asyncio.Event(), asyncio.Event()

        @gate.handler("bookings", key="{id}", same_database=True)
        async def book(event, once):
            await once.tx.execute(BOOK, (event["equipment"], once.attempt))
            if once.attempt == 1:
                inside.set()
                await never.wait()
            return "booked"

        task = asyncio.create_task(gate.admit("bookings", EVENT))
        await inside.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert booked_ledger.bookings() == []
        return await gate.admit("bookings", EVENT)

    assert asyncio.run(story()).value == "booked"
    assert booked_ledger.bookings() == [("MSKU1234565", "2")]


def test_a_late_retry_of_a_known_key_runs_in_its_transaction(booked_ledger: Ledger, style: Style) -> None:
    """E3 and E4 together: lateness does not matter for a known key, and it is still one transaction."""
    gate = booking(booked_ledger, style, Unlucky(1), occurred_at="at")
    event = {**EVENT, "at": from_wall_ms(booked_ledger.clock.wall_ms()).isoformat()}
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", event)
    booked_ledger.clock.advance(3600)
    assert style.admit(gate, "bookings", event).verdict is Verdict.RUN
    assert booked_ledger.bookings() == BOOKED


def test_a_new_event_too_far_from_our_clock_is_quarantined_here_too(
    booked_ledger: Ledger, style: Style
) -> None:
    """E3: the time gate stands before the transaction."""
    gate = booking(booked_ledger, style, occurred_at="at")
    event = {**EVENT, "at": from_wall_ms(booked_ledger.clock.wall_ms() - 3_600_000).isoformat()}
    assert style.admit(gate, "bookings", event).verdict is Verdict.QUARANTINE
    assert booked_ledger.bookings() == []
