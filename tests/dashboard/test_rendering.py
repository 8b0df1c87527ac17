"""Lengths of time as an entry's history shows them."""

from __future__ import annotations

import pytest

from oncegate.dashboard.rendering import later


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "+0 ms"),
        (999, "+999 ms"),
        (1_000, "+1.000 s"),
        (16_240, "+16.240 s"),
        (120_000, "+2 min"),
        (-12, "-12 ms"),
        (90_000_000, "+25 h"),
    ],
)
def test_a_moment_is_told_by_its_distance_from_the_first_arrival(milliseconds, shown):
    assert later(milliseconds) == shown
