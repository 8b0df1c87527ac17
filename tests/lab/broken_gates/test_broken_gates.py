"""The broken-gate suite: the harness catches every broken gate, with a small schedule, and only them."""

from __future__ import annotations

import pytest

from lab import ROOT
from lab.broken_gates import BROKEN_GATES
from lab.broken_gates.guide import guide
from lab.broken_gates.hunt import hunt
from lab.simulator.outcome import play

ITEMS_MAX = 8  # deliveries and faults together: what a person can follow


@pytest.mark.parametrize("name", BROKEN_GATES)
def test_broken_gate_is_caught_with_a_small_schedule_that_the_true_gate_passes(name):
    catch = hunt(BROKEN_GATES[name])

    assert catch is not None, "it escaped"
    assert catch.violations
    assert len(catch.schedule.items) <= ITEMS_MAX
    assert play(catch.schedule).violations == []


def test_collection_is_large_and_every_broken_gate_has_a_story():
    assert len(BROKEN_GATES) >= 20
    for broken in BROKEN_GATES.values():
        assert broken.title()
        assert len(broken.story()) > 60


def test_guide_is_up_to_date():
    """Regenerate with: python -m lab.broken_gates.guide > docs/broken-gates.md."""
    committed = (ROOT / "docs" / "broken-gates.md").read_text("utf-8")

    assert committed == guide()
