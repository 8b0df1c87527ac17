"""What leaves the identity of an event alone: its spelling, its defaults, what a handler does to it."""

from __future__ import annotations

from typing import Any

import pytest

from oncegate import Conflict, Gate, Verdict
from oncegate.testing import CrashReached
from tests.support.gates import LEASE, DeadAfter, Ledger, Style

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_two_spellings_of_one_text_are_one_key(ledger: Ledger) -> None:
    gate, ran = ledger.gate(), list[object]()
    gate.handler("orders", key="{shop}", ignore=["shop"])(ran.append)
    assert gate.admit_sync("orders", {"shop": COMPOSED}).verdict is Verdict.RUN
    assert gate.admit_sync("orders", {"shop": DECOMPOSED}).verdict is Verdict.REPLAY
    assert len(ran) == 1


def test_another_spelling_is_a_conflict_where_the_content_counts(ledger: Ledger) -> None:
    """The fingerprint is that of the bytes: a person looks at it, and nothing runs a second time."""
    gate = ledger.gate()
    gate.handler("orders", key="{shop}")(lambda event: None)
    gate.admit_sync("orders", {"shop": COMPOSED})
    assert gate.admit_sync("orders", {"shop": DECOMPOSED}).verdict is Verdict.CONFLICT


@pytest.mark.parametrize("tenant", ["{owner}", None])
def test_two_spellings_of_a_tenant_are_one_tenant(ledger: Ledger, tenant: str | None) -> None:
    gate = ledger.gate()
    gate.handler("orders", key="{id}", tenant=tenant, ignore=["owner"])(lambda event: None)
    given = [None, None] if tenant else [COMPOSED, DECOMPOSED]
    first = gate.admit_sync("orders", {"id": 1, "owner": COMPOSED}, tenant=given[0])
    again = gate.admit_sync("orders", {"id": 1, "owner": DECOMPOSED}, tenant=given[1])
    assert (first.verdict, again.verdict) == (Verdict.RUN, Verdict.REPLAY)
    assert ledger.rows("SELECT DISTINCT tenant FROM oncegate_entries") == [(COMPOSED,)]


def test_an_event_that_names_its_senders_tenant_in_another_spelling_is_taken(ledger: Ledger) -> None:
    gate = ledger.gate()
    gate.handler("orders", key="{id}", tenant="{owner}")(lambda event: None)
    admission = gate.admit_sync("orders", {"id": 1, "owner": COMPOSED}, tenant=DECOMPOSED)
    assert admission.verdict is Verdict.RUN


def _versions(gates: tuple[Gate, Gate], style: Style, calls: list[Any]) -> tuple[Any, Any]:
    def before(order, cents=100):
        calls.append((order, cents))
        return order

    def after(order, cents=100, currency="EUR", *tags, note=None, **more):
        calls.append((order, cents, currency, note))
        return order

    after.__qualname__ = before.__qualname__  # the same function, changed
    old, new = gates
    return (
        old.once(key="{order}", name="pay", lease=LEASE)(style.function(before)),
        new.once(key="{order}", name="pay", lease=LEASE)(style.function(after)),
    )


def test_a_parameter_with_a_default_that_is_added_changes_no_earlier_call(
    ledger: Ledger, style: Style
) -> None:
    calls: list[Any] = []
    old, new = _versions((ledger.gate(), ledger.gate()), style, calls)
    style.call(old, "A-1")
    style.call(old, "A-2", cents=7)
    # When the next version of the program is called for the same orders
    assert style.call(new, "A-1") == "A-1"
    assert style.call(new, "A-1", 100, "EUR") == "A-1"
    assert style.call(new, "A-2", 7) == "A-2"
    # Then nothing runs again, and an old worker knows what a new one did
    assert style.call(new, "A-3") == style.call(old, "A-3") == "A-3"
    assert calls == [("A-1", 100), ("A-2", 7), ("A-3", 100, "EUR", None)]


def test_an_argument_that_is_not_the_default_is_another_content(ledger: Ledger, style: Style) -> None:
    old, new = _versions((ledger.gate(), ledger.gate()), style, [])
    style.call(old, "A-1")
    for other in ({"currency": "USD"}, {"cents": 7}, {"cents": True}, {"note": ""}, {"extra": 1}):
        with pytest.raises(Conflict):
            style.call(new, "A-1", **other)


def test_a_recovered_call_has_the_defaults_it_was_made_with(ledger: Ledger) -> None:
    """The stored event is whole: a default that changed meanwhile is not slipped into an old call."""
    calls: list[Any] = []

    def pay(order, currency="EUR"):
        calls.append(currency)

    dying = ledger.gate(DeadAfter("reserve.after"))
    honouring = dying.downstream("d", honours_key="7d")
    with pytest.warns(UserWarning, match="key"):
        first = dying.once(key="{order}", name="pay", lease=LEASE, downstream=honouring)(pay)
    with pytest.raises(CrashReached):
        first("A-1")
    ledger.lapse()
    gate = ledger.gate()

    def pay_now(order, currency="USD"):
        calls.append(currency)

    pay_now.__qualname__ = pay.__qualname__
    once = gate.once(
        key="{order}", name="pay", lease=LEASE, downstream=gate.downstream("d", honours_key="7d")
    )
    with pytest.warns(UserWarning, match="key"):
        once(pay_now)
    with gate.engine.store.look() as session:
        ((entry,),) = ledger.rows("SELECT id FROM oncegate_entries")
        stranded = session.detail(entry)
    assert stranded is not None
    gate.engine.recover_sync(stranded)
    assert calls == ["EUR"]


@pytest.mark.parametrize("wraps", [True, False], ids=["once", "handler"])
def test_a_handler_that_changes_its_event_leaves_the_callers_alone(
    ledger: Ledger, style: Style, wraps: bool
) -> None:
    gate, event = ledger.gate(), {"order": "A-1", "lines": [{"sku": "x"}], "at": (1, [2])}

    def change(event):
        event["lines"][0]["sku"] = "changed"
        event["lines"].append("one more")
        event["at"][1].append(3)
        event["done"] = True

    if wraps:

        def pay(order, lines, at):
            change({"lines": lines, "at": at})

        once = gate.once(key="{order}", lease=LEASE)(style.function(pay))
        style.call(once, **event)
        style.call(once, **event)  # would raise Conflict
    else:
        gate.handler("orders", key="{order}", lease=LEASE)(style.function(change))
        assert style.admit(gate, "orders", event).verdict is Verdict.RUN
        assert style.admit(gate, "orders", event).verdict is Verdict.REPLAY
    assert event == {"order": "A-1", "lines": [{"sku": "x"}], "at": (1, [2])}
