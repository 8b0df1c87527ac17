"""The broken-gate suite: the harness catches every broken gate, with a small schedule, and only them."""

from __future__ import annotations

import pytest

from lab import ROOT
from lab.broken_gates import BROKEN_GATES
from lab.broken_gates.guide import guide
from lab.broken_gates.hunt import hunt
from lab.simulator.outcome import play

ITEMS_MAX = 8  # deliveries and faults together: what a person can follow
# Where the hunt begins in CI: the schedules before show nothing, or take long to make small. If schedules
# change, it goes on from there. `make soak` hunts from the first schedule on.
BEGIN = {
    "FiveMinuteStore": 4,
    "MonthUniqueKey": 54,
    "ContentIsTheKey": 7,
    "GlobalKey": 50,
    "RewordedTemplate": 4,
    "TransportKey": 5,
    "SameKeyTwiceInABatch": 45,
    "DoNothingAndSelect": 7,
    "InsertAfterEffect": 23,
    "ImpatientProbe": 28,
    "UnfencedCommit": 71,
    "ConfidentZombie": 629,
    "ClientClockExpiry": 321,
    "NumbersGivenOutAgain": 331,
    "CountsInsteadOfTime": 255,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN_GATES)
def test_broken_gate_is_caught_with_a_small_schedule_that_the_true_gate_passes(name):
    check_hunt(name, BEGIN.get(name, 1))


@pytest.mark.soak
@pytest.mark.parametrize("name", BEGIN)
def test_soak_the_hunt_from_the_first_schedule(name):
    check_hunt(name, 1)


def check_hunt(name, first_seed):
    catch = hunt(BROKEN_GATES[name], first_seed)

    assert catch is not None, "it escaped"
    assert catch.violations
    assert len(catch.schedule.items) <= ITEMS_MAX
    assert play(catch.schedule).violations == []


def test_collection_is_large_and_every_broken_gate_has_a_story():
    assert len(BROKEN_GATES) >= 20
    for broken in BROKEN_GATES.values():
        assert broken.title()
        assert len(broken.story()) > 60


@pytest.mark.slow
def test_guide_is_up_to_date():
    """Regenerate with: python -m lab.broken_gates.guide > docs/broken-gates.md."""
    committed = (ROOT / "docs" / "broken-gates.md").read_text("utf-8")

    assert committed == guide()
