"""Event loops that are over before their tasks are: what they held is let go, and harms nobody."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from oncegate import Gate, Verdict
from oncegate.gate.flows.key_injection import current_step_key
from oncegate.gate.runtime.tracing import current_claim
from tests.support.gates import LEASE, LEASE_SECONDS, Ledger, until

EVENT = {"id": "N-1"}


def leave_in_the_middle(gate: Gate) -> asyncio.Task[Any]:
    """Admits the event in a loop that is closed while an effect of it is under way."""
    pay, inside = gate.downstream("pay", honours_key="7d"), []

    async def charge(idempotency_key):
        inside.append(idempotency_key)
        await asyncio.Event().wait()

    @gate.handler("bookings", key="{id}", lease=LEASE, time_limit="1h")
    async def book(event, once):
        await once.effect(pay, charge)

    loop = asyncio.new_event_loop()
    task = loop.create_task(gate.admit("bookings", EVENT))
    loop.run_until_complete(until(lambda: inside))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task


@pytest.mark.parametrize("batched", [True, False], ids=["in a batch", "alone"])
def test_the_claim_of_a_loop_that_is_over_is_not_renewed(ledger: Ledger, batched: bool) -> None:
    """D2: nobody goes on with it, though its task is still referred to; it lapses and is looked into."""
    gate, other = ledger.gate(), ledger.gate()
    gate.engine._context.commits._gathered_last = 0 if batched else 1
    task = leave_in_the_middle(gate)
    # When its lease has nearly run out
    ledger.clock.advance(LEASE_SECONDS / 2)
    assert gate.engine._context.leases.renew_due() == 0
    ledger.lapse()

    # Then another worker takes it up
    @other.handler("bookings", key="{id}", lease=LEASE)
    def book(event, once):
        return "done"

    assert not task.done()
    assert other.admit_sync("bookings", EVENT).verdict is Verdict.RUN


@pytest.mark.slow
def test_a_task_destroyed_in_anothers_context_leaves_that_as_it_is(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed wherever its last reference goes: be it in the midst of another event's effect."""
    noise: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", noise.append)
    gate = ledger.gate()
    task = leave_in_the_middle(gate)
    claim: Any = object()
    key_token, claim_token = current_step_key.set("mine"), current_claim.set(claim)
    try:
        # When it is destroyed here
        gate.engine._context.leases.renew_due()
        del task
        gc.collect()
        # Then what stands here stands, and nothing is complained of
        assert (current_step_key.get(), current_claim.get()) == ("mine", claim)
    finally:
        current_step_key.reset(key_token)
        current_claim.reset(claim_token)
    assert not noise
