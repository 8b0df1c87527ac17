"""Circuits of downstreams: when one rests, who may try, and when all go on."""

from __future__ import annotations

from oncegate.gate.runtime.circuits import TRIAL_MS_MAX, Circuits
from oncegate.gate.runtime.reachability import Reach
from oncegate.testing import ManualClock


def _down(circuits: Circuits, entry: int = 1) -> None:
    circuits.failed("orders", "bank", entry, Reach.NOT_REACHED, "refused")


def test_downstream_that_is_not_reached_rests_at_once_and_tries_one_at_a_time() -> None:
    """The first refused connection is enough: it is down for every event."""
    clock = ManualClock()
    circuits = Circuits(clock.ticks_ms)
    assert circuits.begin("bank", 1) is None
    _down(circuits)
    assert circuits.begin("bank", 2) == 1_000
    clock.advance(1)
    assert circuits.begin("bank", 2) is None, "the trial"
    assert circuits.begin("bank", 3) == 1_000, "one at a time"
    circuits.end("bank", 3)
    assert circuits.begin("bank", 3) == 1_000, "another's end does not end the trial"
    _down(circuits, 2)
    circuits.end("bank", 2)
    assert circuits.begin("bank", 3) == 2_000, "longer each time"
    clock.advance(2)
    assert circuits.begin("bank", 3) is None
    circuits.answered("bank")
    circuits.end("bank", 3)
    assert [circuits.begin("bank", entry) for entry in (4, 5)] == [None, None]


def test_trial_that_ends_without_news_makes_room_for_the_next() -> None:
    """An error that says nothing about the other side neither opens nor closes it."""
    clock = ManualClock()
    circuits = Circuits(clock.ticks_ms)
    _down(circuits)
    clock.advance(1)
    assert circuits.begin("bank", 2) is None
    circuits.failed("orders", "bank", 2, Reach.UNTOLD, "ValueError")
    circuits.end("bank", 2)
    assert circuits.begin("bank", 3) is None


def test_trial_that_never_ends_does_not_keep_all_others_out() -> None:
    """I26: a call that hangs is not waited for without end."""
    clock = ManualClock()
    circuits = Circuits(clock.ticks_ms)
    _down(circuits)
    clock.advance(1)
    assert circuits.begin("bank", 2) is None
    clock.advance((TRIAL_MS_MAX - 1) / 1000)
    assert circuits.begin("bank", 3) is not None
    clock.advance(0.001)
    assert circuits.begin("bank", 3) is None


def test_one_event_that_fails_again_and_again_rests_nothing() -> None:
    """I11: many events must fail in a row, with no answer between them."""
    clock = ManualClock()
    circuits = Circuits(clock.ticks_ms)
    for _ in range(50):
        circuits.failed("orders", "bank", 1, Reach.UNWELL, "503")
    assert circuits.rest_ms("bank") is None
    for entry in range(2, 6):
        circuits.failed("orders", "bank", entry, Reach.UNWELL, "503")
    assert circuits.rest_ms("bank") == 1_000


def test_surface_is_known_by_the_downstreams_its_events_met() -> None:
    """Accepted events and recovery are not even taken up while what they would call rests."""
    clock = ManualClock()
    circuits = Circuits(clock.ticks_ms)
    _down(circuits)
    assert circuits.rests("orders") == ("bank", 1_000)
    assert circuits.rests("mails") is None
    assert circuits.rests("mails", ["bank"]) == ("bank", 1_000)
    assert (circuits.is_unwell("orders"), circuits.is_unwell("mails")) == (True, False)
    assert "refused" in circuits.why("bank")
