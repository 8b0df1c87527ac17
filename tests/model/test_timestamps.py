"""Times on the wire: strict RFC 3339, always an offset, always UTC inside."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncegate.errors import BadTimestamp
from oncegate.model.timestamps import format_timestamp, parse_timestamp, to_utc
from tests.support.properties import tried

bounded = tried(80)
offsets = st.integers(min_value=-1439, max_value=1439).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)


class AutumnChange(tzinfo):
    """A zone whose hour from 01:00 to 02:00 on 3 November 2024 happens twice."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        assert moment is not None
        wall = moment.replace(tzinfo=None)
        second_pass = wall >= datetime(2024, 11, 3, 2) or (  # noqa: DTZ001 - wall clocks are naive
            wall >= datetime(2024, 11, 3, 1) and moment.fold == 1  # noqa: DTZ001
        )
        return timedelta(hours=-5 if second_pass else -4)

    def dst(self, moment: datetime | None) -> timedelta:
        return self.utcoffset(moment) + timedelta(hours=5)

    def tzname(self, moment: datetime | None) -> str:
        return "AutumnChange"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-31T22:14:07Z", datetime(2024, 5, 31, 22, 14, 7, tzinfo=UTC)),
        ("2024-05-31t22:14:07z", datetime(2024, 5, 31, 22, 14, 7, tzinfo=UTC)),
        ("2024-05-31T22:14:07+00:00", datetime(2024, 5, 31, 22, 14, 7, tzinfo=UTC)),
        ("2024-05-31T22:14:07+02:00", datetime(2024, 5, 31, 20, 14, 7, tzinfo=UTC)),
        ("2024-05-31T22:14:07-05:30", datetime(2024, 6, 1, 3, 44, 7, tzinfo=UTC)),
        ("2024-02-29T00:00:00+23:59", datetime(2024, 2, 28, 0, 1, tzinfo=UTC)),
        ("2024-05-31T22:14:07.5Z", datetime(2024, 5, 31, 22, 14, 7, 500_000, tzinfo=UTC)),
        ("2024-05-31T22:14:07.000001Z", datetime(2024, 5, 31, 22, 14, 7, 1, tzinfo=UTC)),
        ("2024-05-31T22:14:07.123456789Z", datetime(2024, 5, 31, 22, 14, 7, 123_456, tzinfo=UTC)),
        ("2024-05-31T22:14:07.999999999Z", datetime(2024, 5, 31, 22, 14, 7, 999_999, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_explicit_offset_is_normalised_to_utc(text: str, expected: datetime) -> None:
    """Every accepted spelling is one instant in UTC."""
    parsed = parse_timestamp(text)
    assert (parsed, parsed.tzinfo) == (expected, UTC)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2024-05-31T22:14:07", "no offset"),
        ("2024-05-31T22:14:07.123", "no offset"),
        ("2024-05-31T22:14:07-00:00", "unknown"),
        ("2024-05-31T22:14:07+24:00", "offset out of range"),
        ("2024-05-31T22:14:07-23:60", "offset out of range"),
        ("2024-05-31T22:14:07.1234567891Z", "more than 9 digits"),
        ("2024-05-31T22:14:07.Z", "malformed"),
        ("2024-05-31T22:14:07,5Z", "malformed"),
        ("2024-05-31 22:14:07Z", "malformed"),
        ("2024-05-31T22:14Z", "malformed"),
        ("2024-05-31T22:14:07+0200", "malformed"),
        ("2024-05-31T22:14:07+02", "malformed"),
        ("2024-05-31T22:14:07 Z", "malformed"),
        ("2024-05-31T22:14:07ZZ", "malformed"),
        ("2024-05-31T22:14:07Z\n", "malformed"),
        (" 2024-05-31T22:14:07Z", "malformed"),
        ("20240531T221407Z", "malformed"),
        ("2024-W22-5T22:14:07Z", "malformed"),
        ("2024-05-31", "malformed"),
        ("1717193647", "malformed"),
        ("", "malformed"),
        ("+2024-05-31T22:14:07Z", "malformed"),
        ("\uff12\uff10\uff12\uff14-05-31T22:14:07Z", "malformed"),
        ("\u0662\u0660\u0662\u0664-05-31T22:14:07Z", "malformed"),
        ("2024-05-31T22:14:07\N{MINUS SIGN}05:00", "malformed"),
        ("2024-05-31T22:14:07." + "1" * 10_000 + "Z", "malformed"),
        ("0000-01-01T00:00:00Z", "out of range"),
        ("2024-02-30T00:00:00Z", "out of range"),
        ("2023-02-29T00:00:00Z", "out of range"),
        ("2024-13-01T00:00:00Z", "out of range"),
        ("2024-05-31T24:00:00Z", "out of range"),
        ("2024-05-31T22:60:00Z", "out of range"),
        ("2024-05-31T22:14:61Z", "out of range"),
        ("9999-12-31T23:59:59-01:00", "out of range"),
        ("0001-01-01T00:00:00+01:00", "out of range"),
    ],
)
def test_bad_text_is_refused_with_its_reason(text: str, reason: str) -> None:
    """Each way of being wrong has a reason a person can act on."""
    with pytest.raises(BadTimestamp, match=reason):
        parse_timestamp(text)


@pytest.mark.parametrize("value", [None, 1717193647, 1.5, True, b"2024-05-31T22:14:07Z", {}, []])
def test_other_types_are_refused(value: Any) -> None:
    """A number of seconds has no agreed unit or epoch, so only texts are taken."""
    with pytest.raises(BadTimestamp, match="expected a text"):
        parse_timestamp(value)


@pytest.mark.parametrize(
    "text", ["2016-12-31T23:59:60Z", "2017-01-01T00:59:60+01:00", "2016-12-31T23:59:60.75Z"]
)
def test_leap_second_is_the_first_instant_of_the_next_minute(text: str) -> None:
    """The second that UTC inserts has no datetime of its own and maps to what follows it."""
    assert parse_timestamp(text) == datetime(2017, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2016-12-31T23:59:60+01:00",
        "2016-12-31T22:59:60Z",
        "2016-12-31T23:58:60Z",
        "9999-12-31T23:59:60Z",
        "2016-02-30T23:59:60Z",
        "2016-12-31T23:59:60",
    ],
)
def test_second_sixty_elsewhere_is_refused(text: str) -> None:
    """A leap second happens at one instant worldwide, so anywhere else :60 is a mistake."""
    with pytest.raises(BadTimestamp):
        parse_timestamp(text)


def test_refusal_never_repeats_the_value() -> None:
    """A field that was misread as a time may hold personal data."""
    with pytest.raises(BadTimestamp) as refused:
        parse_timestamp("Jane Doe, 1 Secret Street")
    assert "Jane" not in str(refused.value)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (datetime(2024, 5, 31, 22, 14, 7, tzinfo=UTC), "2024-05-31T22:14:07.000Z"),
        (datetime(2024, 5, 31, 22, 14, 7, 120_000, tzinfo=UTC), "2024-05-31T22:14:07.120Z"),
        (datetime(2024, 5, 31, 22, 14, 7, 120_001, tzinfo=UTC), "2024-05-31T22:14:07.120001Z"),
        (datetime(7, 1, 2, tzinfo=UTC), "0007-01-02T00:00:00.000Z"),
        (
            datetime(2024, 6, 1, 0, 30, tzinfo=timezone(timedelta(hours=2))),
            "2024-05-31T22:30:00.000Z",
        ),
    ],
)
def test_format_is_one_spelling_per_instant(moment: datetime, expected: str) -> None:
    """Milliseconds always, microseconds only where there are any, and Z."""
    assert format_timestamp(moment) == expected


def test_both_passes_of_a_repeated_hour_are_different_instants() -> None:
    """The hour that daylight saving time repeats is told apart by its offset."""
    zone = AutumnChange()
    first = datetime(2024, 11, 3, 1, 30, tzinfo=zone)
    second = first.replace(fold=1)
    assert format_timestamp(first) == "2024-11-03T05:30:00.000Z"
    assert format_timestamp(second) == "2024-11-03T06:30:00.000Z"
    assert to_utc(second) - to_utc(first) == timedelta(hours=1)


def test_same_wall_clock_with_both_offsets_parses_one_hour_apart() -> None:
    """On the wire the repeated hour is unambiguous because the offset is explicit."""
    first = parse_timestamp("2024-11-03T01:30:00-04:00")
    second = parse_timestamp("2024-11-03T01:30:00-05:00")
    assert second - first == timedelta(hours=1)


def test_naive_datetime_is_refused() -> None:
    """A datetime without an offset is not an instant."""
    naive = datetime(2024, 5, 31)  # noqa: DTZ001 - the point of the test
    with pytest.raises(ValueError, match="naive"):
        format_timestamp(naive)
    with pytest.raises(ValueError, match="naive"):
        to_utc(naive)


def test_instant_outside_the_calendar_is_a_value_error() -> None:
    """The edge of the calendar does not escape as an arithmetic error."""
    with pytest.raises(ValueError, match="outside"):
        to_utc(datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))))


@bounded
@given(st.datetimes(timezones=st.just(UTC)))
@example(datetime.min.replace(tzinfo=UTC))
@example(datetime.max.replace(tzinfo=UTC))
def test_format_and_parse_are_inverse(moment: datetime) -> None:
    """Every instant survives being written and read, to the microsecond."""
    assert parse_timestamp(format_timestamp(moment)) == moment


@bounded
@given(st.datetimes(timezones=offsets).filter(lambda moment: 1 < moment.year < 9999))
def test_any_offset_names_the_same_instant(moment: datetime) -> None:
    """What Python writes with any offset of whole minutes is read as the same instant."""
    assert parse_timestamp(moment.isoformat()) == moment


@bounded
@given(st.text(alphabet="0123456789-:.+TZtz \u0663", max_size=40))
def test_arbitrary_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    """No text makes the parser fail in any other way."""
    with contextlib.suppress(BadTimestamp):
        assert parse_timestamp(text).tzinfo is UTC
