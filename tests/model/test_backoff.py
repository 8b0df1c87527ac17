"""Backoff: growth, cap, jitter within bounds, and no overflow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncegate.errors import ConfigError
from oncegate.model.backoff import Backoff

bounded = settings(max_examples=150, derandomize=True, deadline=None, database=None)

jitters = st.floats(min_value=0, max_value=1, exclude_max=True)
backoffs = st.builds(
    Backoff,
    base=st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(minutes=1)),
    factor=st.floats(min_value=1, max_value=1e300),
    cap=st.timedeltas(min_value=timedelta(minutes=1), max_value=timedelta.max),
    attempts_max=st.integers(min_value=1, max_value=1000),
)


def test_default_schedule_doubles_from_one_second_to_five_minutes() -> None:
    """The schedule that operators see is written out."""
    ceilings = [Backoff().ceiling(attempt).total_seconds() for attempt in range(1, 12)]
    assert ceilings == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@bounded
@given(backoffs, st.integers(min_value=1, max_value=10**6), jitters)
def test_delay_is_at_most_the_ceiling(backoff: Backoff, attempt: int, jitter: float) -> None:
    """Full jitter never goes below zero or above the ceiling, nor the ceiling above the cap."""
    assert timedelta(0) <= backoff.delay(attempt, jitter) <= backoff.ceiling(attempt)
    assert backoff.base <= backoff.ceiling(attempt) <= backoff.cap


@bounded
@given(backoffs, st.integers(min_value=1, max_value=10**6))
def test_ceiling_never_shrinks(backoff: Backoff, attempt: int) -> None:
    """A later attempt never waits less at most than an earlier one."""
    assert backoff.ceiling(attempt) <= backoff.ceiling(attempt + 1)


def test_delay_is_the_given_share_of_the_ceiling() -> None:
    """The caller's jitter decides everything, so a schedule can be repeated."""
    assert Backoff().delay(1, 0.0) == timedelta(0)
    assert Backoff().delay(4, 0.25) == timedelta(seconds=2)


@pytest.mark.parametrize("attempt", [10**6, 10**18, 10**400])
def test_absurd_attempt_gives_the_cap(attempt: int) -> None:
    """Growth that no number can hold ends at the cap and not in an error."""
    assert Backoff().ceiling(attempt) == timedelta(minutes=5)
    assert Backoff(cap=timedelta.max).ceiling(attempt) == timedelta.max


def test_factor_one_keeps_the_delay_constant() -> None:
    """A constant delay is a backoff too."""
    assert Backoff(factor=1.0).ceiling(10**6) == timedelta(seconds=1)


@pytest.mark.parametrize("jitter", [-0.01, 1.0, 2.0, float("nan"), float("inf")])
def test_jitter_outside_its_range_is_refused(jitter: float) -> None:
    """A wrong random source is a bug, not a long wait."""
    with pytest.raises(ValueError, match="jitter"):
        Backoff().delay(1, jitter)


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_count_from_one(attempt: int) -> None:
    """There is no wait before the first attempt."""
    with pytest.raises(ValueError, match="count from 1"):
        Backoff().ceiling(attempt)


def test_last_attempt_exhausts() -> None:
    """After attempts_max failures there is no further try."""
    backoff = Backoff(attempts_max=3)
    assert [backoff.exhausted(attempt) for attempt in (1, 2, 3, 4)] == [False, False, True, True]


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": timedelta(0)},
        {"base": timedelta(seconds=-1)},
        {"cap": timedelta(milliseconds=1)},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"factor": float("inf")},
        {"attempts_max": 0},
    ],
)
def test_senseless_settings_are_refused(wrong: dict[str, Any]) -> None:
    """A backoff that shrinks, hammers or never tries is a mistake in the settings."""
    with pytest.raises(ConfigError):
        Backoff(**wrong)
