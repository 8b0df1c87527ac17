"""A few hundred schedules in this very process: quick, for whoever changes the gate and `make mutate`."""

from __future__ import annotations

import pytest

from lab.simulator.campaign import play_seeds

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("first", [1, 201, 401])
def test_two_hundred_schedules_keep_every_promise(first):
    assert play_seeds(first, 200).failures == {}
