"""Retention: keys live long enough, on every boundary of the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncegate.errors import ConfigError
from oncegate.model.retention import (
    RetentionRule,
    Sighting,
    believe,
    check_horizon,
    forget_before_ms,
    month_of,
)
from tests.support.properties import tried

bounded = tried(80)

RULE = RetentionRule(timedelta(days=90))
MICROSECOND = timedelta(microseconds=1)
RECEIVED_AT = datetime(2024, 5, 31, 23, 59, 59, 999_999, tzinfo=UTC)
NAIVE = datetime(2024, 5, 31)  # noqa: DTZ001 - refused by every rule

moments = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3_000_000)).map(
    lambda since: datetime(2, 1, 1, tzinfo=UTC) + since
)
spans = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=1000))
rules = st.builds(RetentionRule, st.timedeltas(timedelta(days=14), timedelta(days=1000)))


class SpringChange(tzinfo):
    """A zone that jumps from 02:00 to 03:00 on 31 March 2024."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        assert moment is not None
        summer = moment.replace(tzinfo=None) >= datetime(2024, 3, 31, 2)  # noqa: DTZ001 - wall clock
        return timedelta(hours=2 if summer else 1)

    def dst(self, moment: datetime | None) -> timedelta:
        return self.utcoffset(moment) - timedelta(hours=1)

    def tzname(self, moment: datetime | None) -> str:
        return "SpringChange"


def test_key_is_known_up_to_its_last_instant() -> None:
    """A key expires after its retention, not at it."""
    last = RULE.expires_at(RECEIVED_AT)
    assert last == RECEIVED_AT + timedelta(days=90)
    assert not RULE.is_expired(RECEIVED_AT, last)
    assert RULE.is_expired(RECEIVED_AT, last + MICROSECOND)


def test_event_is_too_old_only_beyond_the_retention() -> None:
    """An event exactly as old as the retention can still be judged by its key."""
    assert not RULE.is_too_old(RECEIVED_AT, RECEIVED_AT + timedelta(days=90))
    assert RULE.is_too_old(RECEIVED_AT, RECEIVED_AT + timedelta(days=90) + MICROSECOND)
    assert not RULE.is_too_old(RECEIVED_AT, RECEIVED_AT - timedelta(days=400))


@bounded
@given(rules, moments, spans, spans)
@example(RULE, RECEIVED_AT, timedelta(0), timedelta(days=90))
@example(RULE, RECEIVED_AT, timedelta(0), timedelta(days=90) + MICROSECOND)
def test_forgotten_key_means_that_its_replay_is_too_old(
    rule: RetentionRule, occurred_at: datetime, transit: timedelta, later: timedelta
) -> None:
    """There is no instant at which a key is gone and its event would still be taken as new."""
    received_at = occurred_at + transit
    now = received_at + later
    if rule.is_expired(received_at, now):
        assert rule.is_too_old(occurred_at, now)


def test_replay_across_the_month_boundary_is_still_known() -> None:
    """An event of 31 May that comes again on 1 June finds its key."""
    replayed_at = RECEIVED_AT + MICROSECOND
    assert month_of(RECEIVED_AT) != month_of(replayed_at)
    assert not RULE.is_expired(RECEIVED_AT, replayed_at)
    assert not RULE.is_too_old(RECEIVED_AT, replayed_at)


def test_days_are_real_time_across_a_clock_change() -> None:
    """A retention of 14 days is 336 hours, also when the local clock skips one."""
    rule = RetentionRule(timedelta(days=14))
    received_at = datetime(2024, 3, 30, 12, tzinfo=SpringChange())
    assert rule.expires_at(received_at) == datetime(2024, 4, 13, 11, tzinfo=UTC)
    now = datetime(2024, 4, 13, 12, 30, tzinfo=received_at.tzinfo)
    assert not rule.is_expired(received_at, now)
    assert not rule.is_too_old(received_at, now)


def test_local_clock_does_not_shorten_an_age() -> None:
    """Both instants in one zone are compared by real time, not by wall clocks."""
    rule = RetentionRule(timedelta(hours=1), floor=timedelta(0))
    zone = SpringChange()
    occurred_at = datetime(2024, 3, 31, 1, 30, tzinfo=zone)
    now = datetime(2024, 3, 31, 3, 15, tzinfo=zone)
    assert not rule.is_too_old(occurred_at, now)


@pytest.mark.parametrize(
    ("moment", "month"),
    [
        (datetime(2024, 5, 31, 23, 59, 59, tzinfo=UTC), (2024, 5)),
        (datetime(2024, 6, 1, tzinfo=UTC), (2024, 6)),
        (datetime(2024, 5, 31, 23, 30, tzinfo=timezone(timedelta(hours=-5))), (2024, 6)),
        (datetime(2024, 6, 1, 1, tzinfo=timezone(timedelta(hours=2))), (2024, 5)),
        (datetime(2024, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), (2024, 12)),
        (datetime(2025, 1, 1, tzinfo=UTC), (2025, 1)),
        (datetime(2024, 2, 29, 12, tzinfo=UTC), (2024, 2)),
    ],
)
def test_month_is_counted_in_utc(moment: datetime, month: tuple[int, int]) -> None:
    """One instant is filed under one month, whatever zone it was written in."""
    assert month_of(moment) == month


@bounded
@given(moments, moments)
def test_months_follow_time(one: datetime, other: datetime) -> None:
    """A later instant never lies in an earlier month."""
    assert month_of(min(one, other)) <= month_of(max(one, other))


def test_retention_below_the_floor_is_refused() -> None:
    """Fourteen days by default; the floor itself is allowed and can be lowered on purpose."""
    assert RetentionRule(timedelta(days=14))
    assert RetentionRule(timedelta(hours=24), floor=timedelta(hours=24))
    with pytest.raises(ConfigError, match="13d is below the floor of 2w"):
        RetentionRule(timedelta(days=13))


@pytest.mark.parametrize("retention", [timedelta(0), timedelta(days=-1)])
def test_retention_must_be_positive(retention: timedelta) -> None:
    """A lowered floor does not allow remembering nothing."""
    with pytest.raises(ConfigError, match="positive"):
        RetentionRule(retention, floor=timedelta(0))


def test_endless_retention_does_not_overflow() -> None:
    """A retention beyond the calendar means never."""
    rule = RetentionRule(timedelta.max)
    assert rule.expires_at(RECEIVED_AT) == datetime.max.replace(tzinfo=UTC)
    assert not rule.is_expired(RECEIVED_AT, datetime.max.replace(tzinfo=UTC))


def test_horizon_longer_than_the_retention_is_refused() -> None:
    """The explanation names both durations and what would go wrong."""
    check_horizon(timedelta(days=14), timedelta(days=14))
    with pytest.raises(ConfigError, match=r"1d .*11d.*run twice.*at least 11d"):
        check_horizon(timedelta(hours=24), timedelta(days=11))


def test_naive_datetimes_are_refused_everywhere() -> None:
    """No rule guesses a zone, for either of its arguments."""
    for call in (
        lambda: RULE.expires_at(NAIVE),
        lambda: RULE.is_expired(NAIVE, RECEIVED_AT),
        lambda: RULE.is_expired(RECEIVED_AT, NAIVE),
        lambda: RULE.is_too_old(NAIVE, RECEIVED_AT),
        lambda: RULE.is_too_old(RECEIVED_AT, NAIVE),
        lambda: month_of(NAIVE),
    ):
        with pytest.raises(ValueError, match="naive"):
            call()


DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS


def test_first_sighting_of_an_empty_ledger_is_believed():
    """There is nothing to compare it with, and nothing to forget."""
    assert believe(None, 5, 7) == Sighting(5, 7)


def test_first_sighting_is_compared_with_the_newest_entry():
    hour = 3_600_000
    assert believe(None, DAY_MS + hour, 7, newest_ms=DAY_MS) == Sighting(DAY_MS + hour, 7)
    assert believe(None, YEAR_MS, 7, newest_ms=DAY_MS) == Sighting(DAY_MS, 7, 7)


def test_server_and_client_that_leap_together_are_doubted():
    """The server's clock is a wall clock too; the ledger's own time gains 20 s at most."""
    last = Sighting(0, 0, None, 0)
    assert believe(last, YEAR_MS, YEAR_MS, ledger_ms=20_000) == Sighting(20_000, YEAR_MS, YEAR_MS, 20_000)
    week = 7 * DAY_MS
    assert believe(last, week, week, ledger_ms=0) == Sighting(week, week, None, 0)


@pytest.mark.parametrize("gain", [-YEAR_MS, -7_200_000, -1, 0, 1, 3_600_000])
def test_wall_clock_that_keeps_pace_or_falls_back_is_believed(gain):
    """Back is safe: keys are only kept longer."""
    last = Sighting(10 * YEAR_MS, 1_000)
    assert (
        believe(last, last.wall_ms + DAY_MS + gain, 1_000 + DAY_MS).wall_ms == last.wall_ms + DAY_MS + gain
    )


def test_leap_is_doubted_for_a_day_of_ledger_time():
    """Until then time goes on from before the leap; one of more than a week is doubted for ever."""
    week = 7 * DAY_MS
    seen = believe(Sighting(0, 0), week, 10)
    assert seen == Sighting(10, 10, 10)
    seen = believe(seen, week + DAY_MS - 1, DAY_MS + 9)
    assert seen == Sighting(DAY_MS + 9, DAY_MS + 9, 10)
    assert believe(seen, week + DAY_MS, DAY_MS + 10) == Sighting(week + DAY_MS, DAY_MS + 10)
    later = DAY_MS + 10
    assert believe(seen, YEAR_MS, later) == Sighting(later, later, 10)


def test_leap_that_is_taken_back_is_forgiven():
    """The next leap is doubted from its own beginning."""
    seen = believe(Sighting(0, 0), YEAR_MS, 10)
    assert believe(seen, 20, 20) == Sighting(20, 20)


def test_ledger_time_that_fell_back_makes_nothing_older():
    """A restart of the machine may take ledger time back."""
    assert believe(Sighting(100, 100), 90, 50) == Sighting(90, 50)
    assert believe(Sighting(0, DAY_MS), YEAR_MS, 50) == Sighting(0, 50, 50)


@bounded
@given(
    kept=st.timedeltas(timedelta(hours=24), timedelta(days=400)),
    skew=st.timedeltas(timedelta(seconds=1), timedelta(days=100)),
    ahead=st.floats(-1, 1),
    late_ms=st.integers(0, YEAR_MS),
)
def test_replay_of_a_forgotten_key_is_always_too_old(kept, skew, ahead, late_ms):
    """At no instant is the key gone while its event would be new."""
    received_at = datetime(2026, 3, 29, 1, tzinfo=UTC)
    now = received_at + timedelta(milliseconds=late_ms)
    received_ms, now_ms = (int(moment.timestamp() * 1000) for moment in (received_at, now))
    if received_ms < forget_before_ms(now_ms, kept, skew):
        assert RetentionRule(kept, floor=timedelta(0)).is_too_old(received_at + skew * ahead, now)
