"""Lengths of time and first words as people read them."""

from __future__ import annotations

import pytest

from oncegate.dashboard.rendering import later, sentence, span
from oncegate.dashboard.units import shown as measured
from oncegate.signals.definition import Unit


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


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (89, "1 min"),
        (119, "2 min"),
        (7_199, "119 min"),
        (7_200, "2 h"),
    ],
)
def test_nobody_counts_119_seconds(seconds, shown):
    assert span(seconds * 1000) == shown
    assert measured(seconds, Unit.SECONDS) in (shown, "120 min", "0 ms")


def test_an_address_is_not_given_a_capital():
    assert sentence("no connection") == "No connection"
    assert sentence("postgresql://a cannot be reached") == "postgresql://a cannot be reached"
