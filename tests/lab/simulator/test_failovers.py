"""Failovers that lose commits: living workers notice, and what cannot be known is in front of a person."""

from __future__ import annotations

import pytest

from lab.simulator.checkers.doubts import is_excused
from lab.simulator.outcome import play
from lab.simulator.schedule import Delivery, Event, Fate, Fault, FaultKind, Schedule
from lab.simulator.worker import Blueprint
from lab.simulator.workload import LOSING, make_schedule
from lab.simulator.world import World
from oncegate.model.states import State
from oncegate.testing.simulation import Ledger


@pytest.mark.parametrize("first", [1, 151])
def test_ledger_that_goes_back_breaks_no_promise(first):
    failures = {
        seed: [str(violation) for violation in found]
        for seed in range(first, first + 150)
        if (found := play(make_schedule(seed, LOSING)).violations)
    }

    assert failures == {}


def _played(event: Event, *faults: Fault, again_at: float | None = None) -> World:
    deliveries = [Delivery(1.0, 0, 0)]
    if again_at is not None:
        deliveries.append(Delivery(again_at, 0, 1))
    world = World(Schedule(1, (event,), tuple(deliveries), faults), Blueprint())
    world.run()
    return world


def _failover(at: float, commits: int) -> Fault:
    return Fault(FaultKind.FAILOVER, at=at, nth=commits)


def test_lost_mail_waits_for_a_person_and_is_not_sent_again():
    world = _played(Event("mail", "x", ("a", "b")), _failover(40.0, 16), again_at=50.0)

    (row,) = world.evidence.tables.rows.values()
    (intent,) = world.evidence.lost
    assert row.state is State.HELD
    assert len(world.evidence.effects) == 1
    assert is_excused(world.evidence, intent)


def test_mail_of_a_failed_attempt_that_was_lost_is_not_sent_again():
    event = Event("mail", "x", ("a", "b"), fate=Fate.FAILS_FIRST)
    world = _played(event, _failover(1.5, 16), again_at=50.0)

    assert len(world.evidence.effects) == 1


def test_steps_that_were_lost_behind_their_reservation_are_recorded_again():
    """The entry is in flight under the very claim; recovery must know that the mail went out."""
    world = _played(Event("mail", "x", ("a", "b")), _failover(40.0, 2), again_at=100.0)

    assert len(world.evidence.effects) == 1


def test_failure_that_is_on_no_record_is_not_told_as_final():
    event = Event("book", "x", ("a", "b"), fate=Fate.FAILS_FOR_GOOD)
    # The first three batches: the template of the surface, its decisions, the reservation (reply lost).
    world = _played(event, Fault(FaultKind.STORE_REPLY_LOST, nth=3), _failover(15.0, 16))

    (row,) = world.evidence.tables.rows.values()
    assert row.state is State.FAILED
    assert world.evidence.lost


def test_ledger_goes_back_by_whole_commits_under_another_name():
    ledger = Ledger()
    for number in range(3):
        assert ledger.begin(ledger)
        ledger.set(ledger.tables.business, "t", (number,))
        ledger.commit()

    ledger.go_back(2)

    assert ledger.tables.business["t"] == (0,)
    assert ledger.identity != Ledger().identity
