"""Backoff: growth, cap, jitter within bounds, and no overflow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import ConfigError
from oncegate.model.backoff import Backoff
from tests.support.properties import tried

bounded = tried(80)

jitters = st.floats(min_value=0, max_value=1, exclude_max=True)
backoffs = st.builds(
    Backoff,
    base=st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(minutes=1)),
    factor=st.floats(min_value=1, max_value=1e300),
    cap=st.timedeltas(min_value=timedelta(minutes=1), max_value=timedelta.max),
    attempts_max=st.none() | st.integers(min_value=1, max_value=1000),
    retry_for=st.none() | st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=30)),
    jitter=st.floats(min_value=0, max_value=1),
)


def test_default_schedule_doubles_from_one_second_to_five_minutes() -> None:
    """The schedule that operators see is written out."""
    ceilings = [Backoff().ceiling(attempt).total_seconds() for attempt in range(1, 12)]
    assert ceilings == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@pytest.mark.slow
@bounded
@given(backoffs, st.integers(min_value=1, max_value=10**6), jitters)
def test_delay_is_the_ceiling_and_a_part_of_the_jitter(
    backoff: Backoff, attempt: int, share: float
) -> None:
    """No wait is shorter than the schedule says, none longer by more than the jitter."""
    delay, ceiling = backoff.delay(attempt, share), backoff.ceiling(attempt)
    assert ceiling <= delay
    assert delay / 2 <= ceiling
    assert backoff.base <= backoff.ceiling(attempt) <= backoff.cap


@bounded
@given(backoffs, st.integers(min_value=1, max_value=10**6))
def test_ceiling_never_shrinks(backoff: Backoff, attempt: int) -> None:
    """A later attempt never waits less at most than an earlier one."""
    assert backoff.ceiling(attempt) <= backoff.ceiling(attempt + 1)


def test_first_waits_are_one_two_and_four_seconds_and_a_little() -> None:
    """The caller's share decides the jitter, so a schedule can be repeated."""
    assert [Backoff().delay(n, 0.0).total_seconds() for n in (1, 2, 3)] == [1, 2, 4]
    assert [Backoff().delay(n, 0.5).total_seconds() for n in (1, 2, 3)] == [1.05, 2.1, 4.2]
    assert Backoff(jitter=0).delay(3, 0.9) == timedelta(seconds=4)


@pytest.mark.parametrize("attempt", [10**6, 10**18, 10**400])
def test_absurd_attempt_gives_the_cap(attempt: int) -> None:
    """Growth that no number can hold ends at the cap and not in an error."""
    assert Backoff().ceiling(attempt) == timedelta(minutes=5)
    assert Backoff(cap=timedelta.max).ceiling(attempt) == timedelta.max


def test_factor_one_keeps_the_delay_constant() -> None:
    """A constant delay is a backoff too."""
    assert Backoff(factor=1.0).ceiling(10**6) == timedelta(seconds=1)


@pytest.mark.parametrize("share", [-0.01, 1.0, 2.0, float("nan"), float("inf")])
def test_share_outside_its_range_is_refused(share: float) -> None:
    """A wrong random source is a bug, not a long wait."""
    with pytest.raises(ValueError, match="share"):
        Backoff().delay(1, share)


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
    ("hours", "attempts"),
    [(0, 1), (1 / 3600, 2), (2.9 / 3600, 2), (3 / 3600, 3), (24, 296), (72, 872)],
)
def test_retries_end_after_their_horizon(hours: float, attempts: int) -> None:
    """The last attempt is the last that fits: its waits add up to `retry_for` at most."""
    backoff = Backoff(retry_for=timedelta(hours=hours))
    assert not backoff.exhausted(attempts - 1)
    assert backoff.exhausted(attempts)
    waits = [backoff.ceiling(attempt) for attempt in range(1, attempts)]
    assert sum(waits, timedelta(0)) <= timedelta(hours=hours)
    assert sum(waits, backoff.ceiling(attempts)) > timedelta(hours=hours)


def test_without_limits_retries_never_end() -> None:
    """Who sets neither limit ends retries in another way."""
    assert not Backoff(retry_for=None).exhausted(10**9)


@bounded
@given(backoffs, st.integers(min_value=1, max_value=10**6))
def test_exhausted_stays_exhausted(backoff: Backoff, attempt: int) -> None:
    """No attempt follows the last one."""
    assert not backoff.exhausted(attempt) or backoff.exhausted(attempt + 1)


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
        {"retry_for": timedelta(seconds=-1)},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": float("nan")},
    ],
)
def test_senseless_settings_are_refused(wrong: dict[str, Any]) -> None:
    """A backoff that shrinks, hammers or never tries is a mistake in the settings."""
    with pytest.raises(ConfigError):
        Backoff(**wrong)


def test_waits_after_nothing_double_with_the_time_that_was_waited() -> None:
    """Such attempts are not counted, and still the waits grow: 1, 1, 2, 4 … up to 30 s."""
    backoff, waited, waits = Backoff(), timedelta(0), list[float]()
    for _ in range(8):
        wait = backoff.delay_after_nothing(waited, 0)
        waits.append(wait.total_seconds())
        waited += wait
    assert waits == [1, 1, 2, 4, 8, 16, 30, 30]


def test_outer_end_is_seven_horizons_and_at_least_an_hour() -> None:
    """I26: even what certainly did not happen has an end in front of a person."""
    assert Backoff().outer == timedelta(days=7)
    assert Backoff(retry_for=timedelta(seconds=1)).outer == timedelta(hours=1)


def test_both_limits_hold_and_the_tighter_one_counts() -> None:
    """`attempts_max` is a further bound of the horizon, not another way to say it."""
    assert Backoff().attempts_within == 296
    assert Backoff(attempts_max=3).attempts_within == 3
    assert Backoff(attempts_max=10_000).attempts_within == Backoff().attempts_within
    assert Backoff(retry_for=None).attempts_within is None
