"""An event that lets another one arrive: what happens to the inner one is not taken for the outer one's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate, NotApplied, Once
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
