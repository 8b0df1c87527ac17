"""Lines of the gate that no other test near them missed when `make mutate` took them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncegate import Failed, Gate, Once, Verdict
from oncegate.errors import ClaimLost, StoreUnavailable, StoreUnknown
from oncegate.gate.flows.downstream_turns import StillUnderWay
from oncegate.gate.flows.settlement import state_after
from oncegate.gate.runtime.claim import Claim, claim_of
from oncegate.model.keys import derive_key
from oncegate.model.states import Decision, State, conflict_note
from oncegate.model.surface import Arrival
from oncegate.store import Reserved
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ArmedCrashPoints, CrashReached, Faults, faulty
from tests.support.gates import LEASE, Ledger

EVENT = {"id": "N-1"}


@pytest.mark.parametrize("state", State)
def test_the_log_speaks_of_other_content_only_where_a_person_waits(state: State) -> None:
    waits = state in (State.UNKNOWN, State.HELD, State.QUARANTINED)

    assert (conflict_note(state) is not None) is waits


def _claim(gate: Gate, attempt: int) -> Claim:
    @gate.handler("waiting", key="{id}", attempts_max=attempt)
    def handle(event: dict[str, str], once: Once) -> None:
        raise AssertionError("never called")

    key = derive_key("", "waiting", "{id}", ("N-1",))
    arrival = Arrival(key, "", "N-1", b"f" * 16, b"{}", None)
    return claim_of(
        gate.engine.surface("waiting"), arrival, Reserved(Decision.RETRY, 1, 1, attempt=attempt)
    )


def test_waiting_for_a_request_under_way_is_no_attempt_that_could_be_the_last(ledger: Ledger) -> None:
    """At the last attempt a failure waits for a person; a wait for its downstream goes on waiting."""
    claim = _claim(ledger.gate(), attempt=3)

    assert state_after(claim, StillUnderWay("still under way", claim)) is State.RETRYABLE
    assert state_after(claim, ValueError("failed")) is State.HELD


@pytest.mark.parametrize("error", [StoreUnknown, StoreUnavailable, ClaimLost])
def test_errors_of_the_store_inside_a_handler_leave_its_claim_to_lapse(
    ledger: Ledger, error: type[Exception]
) -> None:
    """Nothing is known then that could be recorded: not even that it may be tried again at once."""
    gate = ledger.gate()

    @gate.handler("bookings", key="{id}")
    def book(event: dict[str, str], once: Once) -> None:
        raise error("somewhere else")

    with pytest.raises(error):
        gate.admit_sync("bookings", EVENT)

    assert ledger.state() == "in_flight"


class _Remembering:
    """A gate on a store that can be taken away."""

    def __init__(self, ledger: Ledger, handle: Callable[..., Any]) -> None:
        self.faults = Faults()
        store = faulty(SqliteStore(ledger.path, clock=ledger.clock), self.faults)
        self.gate = Gate(store=store, clock=ledger.clock)
        self.gate.handler("bookings", key="{id}")(handle)


def _returns(event: dict[str, str], once: Once) -> str:
    return "slot 7"


def _commits_first(event: dict[str, str], once: Once) -> str:
    with once.commit():
        pass
    return "slot 7"


@pytest.mark.parametrize("handle", [_returns, _commits_first])
def test_replay_of_what_this_process_has_committed_needs_no_store(
    ledger: Ledger, handle: Callable[..., Any]
) -> None:
    site = _Remembering(ledger, handle)
    assert site.gate.admit_sync("bookings", EVENT).verdict is Verdict.RUN

    site.faults.down = True
    again = site.gate.admit_sync("bookings", EVENT)

    assert (again.verdict, again.value) == (Verdict.REPLAY, "slot 7")
    site.gate.close()


def test_a_failure_is_not_answered_from_memory(ledger: Ledger) -> None:
    """A person may have let the event run again meanwhile."""

    def fails(event: dict[str, str], once: Once) -> str:
        raise Failed("no such terminal")

    site = _Remembering(ledger, fails)
    with pytest.raises(Failed, match="no such terminal"):
        site.gate.admit_sync("bookings", EVENT)

    site.faults.down = True
    with pytest.raises(StoreUnavailable):
        site.gate.admit_sync("bookings", EVENT)
    site.gate.close()


def test_value_that_found_no_entry_to_belong_to_is_not_remembered(ledger: Ledger) -> None:
    """Forgotten between its commit and its value, a key is new: no replay comes out of memory."""
    runs = []

    def forgotten(event: dict[str, str], once: Once) -> str:
        with once.commit():
            pass
        runs.append(1)
        if len(runs) == 1:
            ledger.rows("UPDATE oncegate_meta SET value = 1 WHERE name = 'floor'")
            for table in ("entry", "payload", "outcome"):
                ledger.rows(f"DELETE FROM oncegate_{table}")
        return "slot 7"

    gate = ledger.gate()
    gate.handler("bookings", key="{id}")(forgotten)
    gate.admit_sync("bookings", EVENT)

    assert gate.admit_sync("bookings", EVENT).verdict is Verdict.RUN
    assert len(runs) == 2


def test_resource_of_a_recovered_entry_is_that_of_its_first_step(ledger: Ledger) -> None:
    """Both steps are on record when the worker dies; what the entry owns is what it got first."""

    def book(event: dict[str, str], once: Once) -> str:
        once.step("slot", lambda idempotency_key: {"id": "slot 7"})
        once.step("label", lambda idempotency_key: {"id": "label 9"})
        return "booked"

    dying = ledger.gate(ArmedCrashPoints.raising("settle.before"))
    dying.handler("bookings", key="{id}", lease=LEASE)(book)
    with pytest.raises(CrashReached):
        dying.admit_sync("bookings", EVENT)
    ledger.lapse()

    next_one = ledger.gate()
    next_one.handler("bookings", key="{id}", lease=LEASE)(book)

    assert next_one.admit_sync("bookings", EVENT).resource == "slot 7"
