"""An event that lets another one arrive: what happens to the inner one is not taken for the outer one's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncegate import Failed, Gate, NotApplied, Once, Verdict
from oncegate.errors import OncegateError
from oncegate.testing import ManualClock


def test_patience_with_an_inner_event_does_not_make_the_outer_one_forget_its_attempt(
    tmp_path: Path,
) -> None:
    """An effect that ran into another event's waiting key is asked about before it is called again (I1)."""
    clock = ManualClock()
    sold: list[str] = []
    gate = Gate(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)
    silent = gate.downstream("silent", probe=lambda key: [])
    shop = gate.downstream("shop", probe=lambda key: list(sold))

    def time_out(idempotency_key: str) -> None:
        raise TimeoutError

    def sell_and_pass_on(idempotency_key: str) -> str:
        sold.append("slot")
        gate.admit_sync("inner", {"id": 1})
        return "slot"

    @gate.handler("inner", key="{id}")
    def inner(event: dict[str, Any], once: Once) -> None:
        once.effect(silent, time_out)

    @gate.handler("outer", key="{id}")
    def outer(event: dict[str, Any], once: Once) -> None:
        once.effect(shop, sell_and_pass_on)

    # Given an inner event of which its downstream cannot say yet what became of it
    with pytest.raises(TimeoutError):
        gate.admit_sync("inner", {"id": 1})
    # When the outer event's effect has happened, and then runs into that
    with pytest.raises(NotApplied):
        gate.admit_sync("outer", {"id": 2})
    clock.advance(30)
    gate.admit_sync("outer", {"id": 2})
    gate.close()

    # Then the second attempt has asked, and found it
    assert sold == ["slot"]


@pytest.mark.parametrize("end", ["not applied", "not called", "failed", "recorded failure"])
def test_the_end_of_an_inner_event_is_not_the_word_of_the_outer_call(tmp_path: Path, end: str) -> None:
    """The outer call has charged before it: charging again is for a person to decide (I1, I9)."""
    gate = Gate(f"sqlite:///{tmp_path / 'ledger.db'}")
    bank, mail = gate.downstream("bank"), gate.downstream("mail")
    charged: list[str] = []

    async def never_reached() -> None: ...

    def post() -> None:
        raise NotApplied("the mailbox is full") if end == "not applied" else Failed("no such address")

    @gate.handler("mail", key="{id}")
    def send(event: dict[str, Any], once: Once) -> None:
        once.effect(mail, never_reached if end == "not called" else post)

    def charge() -> None:
        charged.append("charged")
        gate.admit_sync("mail", {"id": 1}).result()

    @gate.handler("orders", key="{id}")
    def order(event: dict[str, Any], once: Once) -> None:
        once.effect(bank, charge)

    # Given an outer event whose call acts, and then runs into the end of an inner one
    if end == "recorded failure":
        with pytest.raises(Failed):
            gate.admit_sync("mail", {"id": 1})
    with pytest.raises(OncegateError):
        gate.admit_sync("orders", {"id": 2})
    # When it comes again
    again = gate.admit_sync("orders", {"id": 2})
    gate.close()
    # Then it waits for a person, and nothing was charged twice
    assert again.verdict is Verdict.HOLD
    assert charged == ["charged"]


def test_a_word_that_is_raised_again_and_again_is_each_events_own(tmp_path: Path) -> None:
    """One instance of an error may be raised for many events: it speaks of the one that it ends."""
    gate = Gate(f"sqlite:///{tmp_path / 'ledger.db'}")
    later, bank = NotApplied("later"), gate.downstream("bank")

    def refuse() -> None:
        raise later

    @gate.handler("orders", key="{id}")
    def order(event: dict[str, Any], once: Once) -> None:
        once.effect(bank, refuse)

    for _ in range(3):
        with pytest.raises(NotApplied):
            gate.admit_sync("orders", {"id": 1})
    gate.close()
