"""The checkers' window on the simulated ledger shows every version of a row, also within one unit."""

from __future__ import annotations

from oncegate.model.states import State
from oncegate.store import Reservation, Settlement
from oncegate.testing import ManualClock
from oncegate.testing.simulation import Ledger, SimulatedStore


def _reservation(token: int) -> Reservation:
    return Reservation(b"k" * 24, "", "s", "l", b"f", b"{}", 0, 20_000, 8, token)


def test_unit_that_ends_a_claim_and_makes_the_next_shows_both():
    seen: list[tuple[object, object]] = []
    ledger = Ledger()
    session = SimulatedStore(ledger, ManualClock()).connect()
    ledger.on_row = lambda before, after: seen.append((before and before.state, after and after.state))
    with session.unit():
        (claim,) = session.reserve([_reservation(1)])

    with session.unit():
        session.settle([Settlement(*claim.claim, State.RETRYABLE, 0, "gate")])
        session.reserve([_reservation(2)])

    assert seen == [
        (None, State.IN_FLIGHT),
        (State.IN_FLIGHT, State.RETRYABLE),
        (State.RETRYABLE, State.IN_FLIGHT),
    ]


def test_unit_that_is_undone_shows_nothing():
    seen: list[object] = []
    ledger = Ledger()
    session = SimulatedStore(ledger, ManualClock()).connect()
    ledger.on_row = lambda before, after: seen.append(after)

    try:
        with session.unit():
            session.reserve([_reservation(1)])
            raise KeyError
    except KeyError:
        pass

    assert seen == []
    assert ledger.tables.rows == {}
