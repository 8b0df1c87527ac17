"""Fences and leases: a worker that lost its claim changes nothing, one that is at work keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncegate import ClaimLost, Gate, Verdict
from oncegate.testing import Fault, Faults, faulty
from tests.support.gates import BOOK, LEASE_SECONDS, Ledger, Style, Terminal, running

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}
PLAIN = Style("plain")


def other_worker(ledger: Ledger, *, fails: bool = False) -> Callable[[], None]:
    """Another process that takes the key over once its lease has lapsed, and settles it."""
    gate = ledger.gate()

    def body(event, once):
        if fails:
            raise RuntimeError("failed too")
        once.commit(writes=[(BOOK, (event["equipment"], "the other's"))])
        return "by the other"

    PLAIN.register(gate, "bookings", body)

    def take_over() -> None:
        ledger.lapse()
        if fails:
            with pytest.raises(RuntimeError):
                gate.admit_sync("bookings", EVENT)
        else:
            assert gate.admit_sync("bookings", EVENT).value == "by the other"

    return take_over


def by_data(style: Style, once: Any) -> Any:
    """Commits data."""
    once.commit(writes=[(BOOK, ("late", "late"))])


def by_block(style: Style, once: Any) -> Any:
    """Commits in a block."""
    return style.block(once, (BOOK, ("late", "late")))


def by_write(style: Style, once: Any) -> Any:
    """Writes as a step."""
    return once.write("book", [(BOOK, ("late", "late"))])


@pytest.mark.parametrize("way", [by_data, by_block, by_write], ids=["data", "block", "write step"])
@pytest.mark.parametrize("fails", [False, True], ids=["other settled", "other failed"])
def test_a_stalled_worker_changes_nothing_after_a_take_over(
    booked_ledger: Ledger, style: Style, way: Any, fails: bool
) -> None:
    """I4: a write with an old fence changes nothing and says so, whatever the newer claim came to."""
    # Given a worker that stalls past its lease, while another one takes over
    gate, take_over = booked_ledger.gate(), other_worker(booked_ledger, fails=fails)

    def body(event, once):
        take_over()
        yield way(style, once)
        return "by the stalled one"

    style.register(gate, "bookings", body)
    before = ("retryable", []) if fails else ("committed", [("MSKU1234565", "the other's")])
    # When it wakes up and commits
    with pytest.raises(ClaimLost):
        style.admit(gate, "bookings", EVENT)
    # Then nothing of it is there, in the business table and in the ledger
    assert (booked_ledger.state(), booked_ledger.bookings()) == before
    if not fails:
        assert style.admit(gate, "bookings", EVENT).value == "by the other"


def test_a_stalled_workers_failure_changes_nothing_either(booked_ledger: Ledger, style: Style) -> None:
    """Its caller learns that the failure is not recorded; the other's outcome stands."""
    gate, take_over = booked_ledger.gate(), other_worker(booked_ledger)

    def body(event, once):
        take_over()
        raise ValueError("too late")

    style.register(gate, "bookings", body, final_errors=(ValueError,))
    with pytest.raises(ClaimLost, match="not recorded"):
        style.admit(gate, "bookings", EVENT)
    assert booked_ledger.state() == "committed"
    assert style.admit(gate, "bookings", EVENT).value == "by the other"


@pytest.mark.parametrize("able", ["asked", "nothing"])
def test_a_stalled_worker_makes_no_call_after_a_take_over(
    booked_ledger: Ledger, style: Style, able: str
) -> None:
    """I1: where the key protects nothing, a worker that lost its claim must not reach the downstream."""
    # Given a downstream that does not honour keys, and a worker that stalls before its call
    terminal = Terminal()

    def process(stall: Callable[[], Any]) -> Gate:
        gate = booked_ledger.gate()
        probe = style.function(terminal.find) if able == "asked" else None
        ect = gate.downstream("ect", probe=probe)

        def body(event, once):
            stall()
            yield once.effect(ect, style.function(terminal.claim), "X")

        style.register(gate, "bookings", body)
        return gate

    second = process(lambda: None)

    def take_over() -> None:
        booked_ledger.clock.advance(LEASE_SECONDS + 61)
        with running(lambda: style.admit(second, "bookings", EVENT)) as answers:
            pass
        assert answers[0].verdict is Verdict.RUN

    first = process(take_over)
    # When it goes on after the other one has made the call
    with pytest.raises(ClaimLost):
        style.admit(first, "bookings", EVENT)
    # Then the downstream was called once
    assert terminal.sold == len(terminal.keys) == 1
    assert booked_ledger.state() == "committed"


def test_a_stalled_worker_that_still_holds_its_claim_goes_on(booked_ledger: Ledger, style: Style) -> None:
    """A lapse alone loses nothing: without a take-over the claim is renewed and the call made."""
    gate, terminal = booked_ledger.gate(), Terminal()
    ect = gate.downstream("ect", probe=style.function(terminal.find))

    def body(event, once):
        booked_ledger.lapse()
        yield once.effect(ect, style.function(terminal.claim), "X")
        return "done"

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.RUN
    assert terminal.sold == 1


def test_fences_only_grow(booked_ledger: Ledger, style: Style) -> None:
    """Each attempt has a higher number than the one before."""
    gate, fences = booked_ledger.gate(), []

    def body(event, once):
        fences.append(booked_ledger.rows("SELECT fence FROM oncegate_entry")[0][0])
        raise RuntimeError("no luck")

    style.register(gate, "bookings", body)
    for _ in range(4):
        with pytest.raises(RuntimeError):
            style.admit(gate, "bookings", EVENT)
    assert fences == sorted(set(fences))


def renewing(ledger: Ledger, style: Style, work: Callable[[Gate], None], **options: Any) -> Gate:
    """A process whose handler does `work` while it holds its claim."""
    gate = ledger.gate()

    def body(event, once):
        work(gate)
        return "done"

    style.register(gate, "bookings", body, **{"time_limit": "1h", **options})
    return gate


def test_renewal_keeps_a_long_handlers_claim(ledger: Ledger, style: Style) -> None:
    """D2: as long as it is renewed, an hour's work is nobody else's."""
    other, verdicts, renewed = ledger.gate(), [], []
    PLAIN.register(other, "bookings", lambda event, once: "by the other")

    def work(gate: Gate) -> None:
        for _ in range(12):
            ledger.clock.advance(LEASE_SECONDS / 2)
            renewed.append(gate.engine._context.leases.renew_due())
            verdicts.append(other.admit_sync("bookings", EVENT).verdict)

    gate = renewing(ledger, style, work)
    assert style.admit(gate, "bookings", EVENT).value == "done"
    assert renewed == [1] * 12
    assert set(verdicts) == {Verdict.BUSY}


def test_a_claim_is_renewed_only_when_a_third_of_its_lease_has_passed(ledger: Ledger, style: Style) -> None:
    """Renewals cost commits; two may fail before a lease lapses."""
    renewed: list[int] = []

    def work(gate: Gate) -> None:
        for _ in range(6):
            ledger.clock.advance(LEASE_SECONDS / 6)
            renewed.append(gate.engine._context.leases.renew_due())

    style.admit(renewing(ledger, style, work), "bookings", EVENT)
    assert renewed == [0, 1, 0, 1, 0, 1]


def test_renewal_stops_at_the_time_limit(ledger: Ledger, style: Style) -> None:
    """D2: past its limit a handler's claim lapses and is looked into, though the handler still runs."""
    other, renewed, answers = ledger.gate(), [], []
    PLAIN.register(other, "bookings", lambda event, once: "by the other")

    def work(gate: Gate) -> None:
        for _ in range(7):
            ledger.clock.advance(LEASE_SECONDS / 2)
            renewed.append(gate.engine._context.leases.renew_due())
        answers.append(other.admit_sync("bookings", EVENT))

    gate = renewing(ledger, style, work, time_limit="20m")
    with pytest.raises(ClaimLost):
        style.admit(gate, "bookings", EVENT)
    assert renewed == [1, 1, 1, 1, 0, 0, 0]
    assert answers[0].value == "by the other"


def test_a_claim_that_cannot_be_renewed_is_marked_lost(ledger: Ledger, style: Style) -> None:
    """The keeper finds out before the handler does; what the handler still tries is refused."""
    gate, other, terminal, renewed = ledger.gate(), ledger.gate(), Terminal(), []
    ect = gate.downstream("ect", honours_key="7d")
    PLAIN.register(other, "bookings", lambda event, once: "by the other")

    def body(event, once):
        ledger.lapse()
        other.admit_sync("bookings", EVENT)
        renewed.append(gate.engine._context.leases.renew_due())
        yield once.effect(ect, style.function(terminal.claim), "X")

    style.register(gate, "bookings", body, time_limit="1h")
    with pytest.raises(ClaimLost, match="another worker holds the key"):
        style.admit(gate, "bookings", EVENT)
    assert renewed == [0]
    assert not terminal.keys


def test_a_renewal_that_the_store_refuses_is_tried_again(ledger: Ledger, style: Style) -> None:
    """A store that is down for a moment does not cost the claim."""
    faults, renewed = Faults(), []
    gate = ledger.gate(store=faulty(ledger.gate().engine.store, faults))

    def body(event, once):
        for fault in (Fault.DOWN, Fault.NONE):
            faults.plan.append(fault)
            ledger.clock.advance(LEASE_SECONDS / 3)
            renewed.append(gate.engine._context.leases.renew_due())
        return "done"

    style.register(gate, "bookings", body, time_limit="1h")
    assert style.admit(gate, "bookings", EVENT).value == "done"
    assert renewed == [0, 1]


def test_a_claim_that_has_ended_is_not_renewed_any_more(ledger: Ledger, style: Style) -> None:
    """Settled or failed, the keeper lets go of it."""
    gate = ledger.gate()

    def body(event, once):
        if event["id"] == "fails":
            raise RuntimeError("no luck")

    style.register(gate, "bookings", body, time_limit="1h")
    style.admit(gate, "bookings", EVENT)
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", {"id": "fails"})
    ledger.clock.advance(LEASE_SECONDS / 2)
    assert gate.engine._context.leases.renew_due() == 0
