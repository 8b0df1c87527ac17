"""More lines of the gate that no other test near them missed when `make mutate` took them out."""

from __future__ import annotations

from typing import Any

import pytest

from oncegate import Gate, Once, Verdict
from oncegate.errors import NotApplied, OutcomeUnknown
from oncegate.gate.claim import claim_of
from oncegate.gate.effects import NotYet
from oncegate.model.keys import derive_key
from oncegate.model.states import Decision
from oncegate.store import Reserved
from oncegate.store.tallies import What
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import Faults, faulty
from tests.support import Ledger

EVENT = {"id": "N-1"}


def _on_a_store_that_can_fail(ledger: Ledger) -> tuple[Gate, Faults]:
    faults = Faults()
    return Gate(
        store=faulty(SqliteStore(ledger.path, clock=ledger.clock), faults), clock=ledger.clock
    ), faults


@pytest.mark.parametrize("options", [{}, {"same_database": True}], ids=["plain", "same database"])
def test_replay_that_was_read_from_the_ledger_once_is_not_read_again(
    ledger: Ledger, options: dict[str, Any]
) -> None:
    """The outcome is final: whoever has seen it needs no store to repeat it."""
    # Given two processes, the first of which has run the event
    first = ledger.gate()
    second, faults = _on_a_store_that_can_fail(ledger)
    for gate in (first, second):
        gate.handler("bookings", key="{id}", **options)(lambda event, once: "slot 7")
    assert first.admit_sync("bookings", EVENT).verdict is Verdict.RUN
    # When the second has replayed it, and then has no store any more
    assert second.admit_sync("bookings", EVENT).verdict is Verdict.REPLAY
    faults.down = True
    # Then it still replays
    again = second.admit_sync("bookings", EVENT)
    assert (again.verdict, again.value) == (Verdict.REPLAY, "slot 7")
    second.close()


def test_replay_of_what_was_committed_in_one_transaction_needs_no_store(ledger: Ledger) -> None:
    gate, faults = _on_a_store_that_can_fail(ledger)
    gate.handler("bookings", key="{id}", same_database=True)(lambda event, once: "slot 7")
    assert gate.admit_sync("bookings", EVENT).verdict is Verdict.RUN

    faults.down = True
    again = gate.admit_sync("bookings", EVENT)

    assert (again.verdict, again.value) == (Verdict.REPLAY, "slot 7")
    gate.close()


class _Unkept:
    """What a call hands out: it has an id, but cannot be stored."""

    def __init__(self, name: str) -> None:
        self.id = name


@pytest.mark.parametrize(("found", "state"), [("S-1", "committed"), ("S-2", "held")])
def test_probe_that_names_something_else_than_the_call_handed_out_is_held(
    ledger: Ledger, found: str, state: str
) -> None:
    """A9: one key owns two things; which of them is ours, a person finds out."""
    # Given a call whose result could not be kept, only its id, and a handler that failed after it
    gate, failures = ledger.gate(), [NotApplied("not now")]
    ect = gate.downstream("ect", probe=lambda key: {"id": found})

    @gate.handler("bookings", key="{id}")
    def book(event: dict[str, str], once: Once) -> str:
        once.effect(ect, lambda idempotency_key: _Unkept("S-1"), name="claim")
        if failures:
            raise failures.pop()
        return "booked"

    with pytest.raises(NotApplied):
        gate.admit_sync("bookings", EVENT)
    # When the next attempt asks, as the result is lost
    if state == "held":
        with pytest.raises(OutcomeUnknown, match="holds 2 resources for claim: S-1 and S-2"):
            gate.admit_sync("bookings", EVENT)
    else:
        gate.admit_sync("bookings", EVENT)
    # Then another id is not taken for ours
    assert ledger.state() == state


def test_key_that_was_read_for_one_call_says_nothing_of_the_next(ledger: Ledger) -> None:
    """The warning about a key that is not passed on belongs to each call; and nothing piles up."""
    gate = ledger.gate()
    ect = gate.downstream("ect", honours_key="7d")

    @gate.handler("bookings", key="{id}")
    def book(event: dict[str, str], once: Once) -> str:
        return str(once.effect(ect, lambda: once.headers["Idempotency-Key"], name="claim"))

    for number in range(3):
        gate.admit_sync("bookings", {"id": str(number)})

    assert gate._context.keys_read == set()


def test_caretakers_look_at_a_same_database_entry_is_no_arrival(ledger: Ledger) -> None:
    """A7: the share of repeats is one of arrivals, and nobody has sent this one again."""
    # Given an event whose transaction was undone, with its failure on record
    gate, failures = ledger.gate(replay_cache_max=0), [ValueError("not now")]

    @gate.handler("local", key="{id}", same_database=True)
    def local(event: dict[str, str], once: Once) -> str:
        if failures:
            raise failures.pop()
        return "done"

    with pytest.raises(ValueError, match="not now"):
        gate.admit_sync("local", EVENT)
    # When a caretaker finishes it
    with gate.store.look() as session:
        detail = session.detail(1)
    assert detail is not None
    gate.recover_sync(detail)
    gate.sightings.flush()
    # Then one arrival was seen
    with gate.store.look() as session:
        counts = {tally.what: tally.count for tally in session.tallies(0, 2**40)}
    assert counts.get(What.FRESH) == 1
    assert What.REPLAY not in counts
    assert What.RETRY not in counts


def test_wait_for_an_earlier_request_says_what_is_waited_for(ledger: Ledger) -> None:
    gate = ledger.gate()
    gate.handler("waiting", key="{id}")(lambda event, once: None)
    key = derive_key("", "waiting", "{id}", ("N-1",))
    claim = claim_of(gate.surface("waiting"), key, Reserved(Decision.RECOVER, 1, 1), b"f" * 16)

    assert str(NotYet("claim at ect: an earlier request", claim)) == "claim at ect: an earlier request"
