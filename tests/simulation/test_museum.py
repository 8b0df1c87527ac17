"""The museum: the harness catches every broken gate, with a small schedule, and only them."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.chaos.museum import EXHIBITS
from oncegate.chaos.museum.guide import guide
from oncegate.chaos.museum.hunt import hunt
from oncegate.chaos.simulator.outcome import play

ITEMS_MAX = 8  # deliveries and faults together: what a person can follow


@pytest.mark.parametrize("name", EXHIBITS)
def test_broken_gate_is_caught_with_a_small_schedule_that_the_true_gate_passes(name):
    catch = hunt(EXHIBITS[name])

    assert catch is not None, "it escaped"
    assert catch.violations
    assert len(catch.schedule.items) <= ITEMS_MAX
    assert play(catch.schedule).violations == []


def test_collection_is_large_and_every_exhibit_has_a_story():
    assert len(EXHIBITS) >= 20
    for exhibit in EXHIBITS.values():
        assert exhibit.title()
        assert len(exhibit.story()) > 60


def test_guide_is_up_to_date():
    """Regenerate with: python -m oncegate.chaos.museum.guide > docs/museum.md."""
    committed = (Path(__file__).parents[2] / "docs" / "museum.md").read_text("utf-8")

    assert committed == guide()
