"""The time gate: how far is too far, in which direction, and never by a wall clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.model.timegate import Direction, Skew, judge_time
from tests.support.properties import tried

bounded = tried(80)

NOW = datetime(2024, 11, 3, 6, 0, tzinfo=UTC)
LIMIT = timedelta(minutes=5)
MICROSECOND = timedelta(microseconds=1)
moments = st.datetimes(timezones=st.just(UTC))


class AutumnChange(tzinfo):
    """A zone whose hour from 01:00 to 02:00 on 3 November 2024 happens twice."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=-5 if moment is not None and moment.fold else -4)

    def dst(self, moment: datetime | None) -> timedelta:
        return self.utcoffset(moment) + timedelta(hours=5)

    def tzname(self, moment: datetime | None) -> str:
        return "AutumnChange"


@pytest.mark.parametrize("distance", [timedelta(0), timedelta(minutes=1), LIMIT])
def test_time_within_the_limit_is_no_skew(distance: timedelta) -> None:
    """The limit itself is allowed, on both sides."""
    assert judge_time(NOW + distance, NOW, LIMIT) is None
    assert judge_time(NOW - distance, NOW, LIMIT) is None


def test_time_beyond_the_limit_is_skew_with_its_direction() -> None:
    """One microsecond more is too much, and the value says which way."""
    beyond = LIMIT + MICROSECOND
    assert judge_time(NOW + beyond, NOW, LIMIT) == Skew(beyond, Direction.FUTURE)
    assert judge_time(NOW - beyond, NOW, LIMIT) == Skew(beyond, Direction.PAST)


def test_offset_does_not_matter() -> None:
    """The same instant in another offset has the same distance."""
    elsewhere = NOW.astimezone(timezone(timedelta(hours=14)))
    assert judge_time(elsewhere, NOW, timedelta(0)) is None


def test_repeated_hour_is_judged_by_real_time() -> None:
    """The same wall clock in both passes of a repeated hour is one hour apart."""
    first = datetime(2024, 11, 3, 1, 30, tzinfo=AutumnChange())
    second = first.replace(fold=1)
    assert judge_time(first, second, LIMIT) == Skew(timedelta(hours=1), Direction.PAST)
    assert judge_time(second, first, LIMIT) == Skew(timedelta(hours=1), Direction.FUTURE)


@bounded
@given(moments, moments, st.timedeltas(min_value=timedelta(0)))
def test_skew_is_reported_exactly_when_the_distance_is_over_the_limit(
    occurred_at: datetime, now: datetime, limit: timedelta
) -> None:
    """Any two instants and any limit: the distance alone decides."""
    skew = judge_time(occurred_at, now, limit)
    assert (skew is not None) == (abs(occurred_at - now) > limit)
    if skew is not None:
        assert skew.distance == abs(occurred_at - now)
        assert (skew.direction is Direction.FUTURE) == (occurred_at > now)


def test_naive_datetimes_are_refused() -> None:
    """Neither the event's time nor ours may lack an offset."""
    naive = NOW.replace(tzinfo=None)
    with pytest.raises(ValueError, match="naive"):
        judge_time(naive, NOW, LIMIT)
    with pytest.raises(ValueError, match="naive"):
        judge_time(NOW, naive, LIMIT)


def test_negative_limit_is_refused() -> None:
    """A limit below nothing would quarantine every event."""
    with pytest.raises(ValueError, match="negative"):
        judge_time(NOW, NOW, -MICROSECOND)
