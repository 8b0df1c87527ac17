"""A conflict says in which fields the contents differ, never with which values, and what looks volatile."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import pytest

from oncegate import Conflict
from oncegate.review.conflicts import contest_of, difference_remarks
from tests.support.gates import Ledger

EVENT = {"id": "n-1", "card": {"number": "4242", "name": "hunter2"}, "amount": 5, "sent_at": "10:00"}


def test_the_error_names_the_fields_and_no_values(ledger: Ledger) -> None:
    """Under `gate.once`, where nothing is kept; ignored fields are not named."""

    @ledger.gate().once(key="{order}", name="pay", ignore=["note"])
    def pay(order: str, card: dict[str, str], amount: int, note: str = "") -> None: ...

    pay("o-1", {"number": "4242", "name": "a"}, 5, "one")
    with pytest.raises(Conflict) as raised:
        pay("o-1", {"number": "hunter2", "name": "a"}, 6, "two")

    assert raised.value.differs == ("amount", "card.number")
    assert "differs in: amount, card.number" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_equal_numbers_are_not_named(ledger: Ledger) -> None:
    """1.10 and 1.1 differ in their spelling only, and are no reason for the conflict."""

    @ledger.gate().once(key="{order}", name="pay")
    def pay(order: str, amount: Decimal, note: str) -> None: ...

    pay("o-1", Decimal("1.10"), "a")
    with pytest.raises(Conflict) as raised:
        pay("o-1", Decimal("1.1"), "b")

    assert raised.value.differs == ("note",)


def test_what_is_kept_and_the_log_say_it_too(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    """In the reason that a person reads, and in the line of the log."""
    gate = ledger.gate()
    gate.handler("hooks", key="{id}")(_nothing)
    gate.admit_sync("hooks", EVENT)
    answer = gate.admit_sync("hooks", {**EVENT, "card": {"number": "hunter3", "name": "hunter2"}, "new": 1})
    ((reason,),) = ledger.rows("SELECT reason FROM oncegate_entries WHERE state = 'quarantined'")
    with caplog.at_level(logging.WARNING, "oncegate.arrivals"):
        gate.engine.sightings.why.write()

    assert answer.differs == ("card.number", "new")
    assert reason.endswith("; differs in: card.number, new")
    assert "differs in: card.number, new" in caplog.text
    assert "hunter" not in f"{reason}{caplog.text}{answer.reason}"
    assert "card" not in str(answer.reason)  # which goes to the sender


def test_a_field_that_differs_in_event_after_event_looks_volatile(ledger: Ledger) -> None:
    """From the third key on, where it alone differs; another difference beside it says nothing."""
    gate = ledger.gate()
    gate.handler("hooks", key="{id}")(_nothing)
    said = []
    for number, change in enumerate([{}, {}, {"amount": 6}, {}, {}]):
        event = {**EVENT, "id": f"n-{number}"}
        gate.admit_sync("hooks", event)
        said.append(gate.admit_sync("hooks", {**event, "sent_at": "11:00", **change}).difference)

    hint = 'sent_at looks volatile: add ignore=["sent_at"]'
    assert [hint in str(one) for one in said] == [False, False, False, True, True]
    with pytest.raises(Conflict, match="looks volatile"):
        gate.admit_sync("hooks", {**EVENT, "id": "n-0", "sent_at": "12:00"}).result()


def test_one_key_with_many_contents_does_not_look_volatile_by_itself(ledger: Ledger) -> None:
    """One sender that repeats itself is one event; the person who decides about its contents sees it."""
    gate = ledger.gate()
    gate.handler("hooks", key="{id}")(_nothing)
    gate.admit_sync("hooks", EVENT)
    said = [gate.admit_sync("hooks", {**EVENT, "sent_at": f"11:0{n}"}).difference for n in range(4)]
    with gate.engine.store.look() as session:
        ((entry_id,), *_) = ledger.rows("SELECT id FROM oncegate_entries WHERE state = 'quarantined'")
        seen = session.detail(entry_id)
        assert seen is not None
        remarks = difference_remarks(session, seen, contest_of(session, seen))

    assert not any("volatile" in str(one) for one in said)
    assert remarks[0].endswith("they differ in: sent_at")
    assert remarks[1] == 'sent_at looks volatile: add ignore=["sent_at"]'


def test_a_field_that_is_ignored_ends_the_conflicts(ledger: Ledger) -> None:
    """The hint is right: with it the same event is a repeat."""
    gate = ledger.gate()
    gate.handler("hooks", key="{id}", ignore=["sent_at"])(_nothing)

    assert not gate.admit_sync("hooks", EVENT).replay
    assert gate.admit_sync("hooks", {**EVENT, "sent_at": "11:00"}).replay


def _nothing(event: Any) -> None:
    """Does nothing."""
