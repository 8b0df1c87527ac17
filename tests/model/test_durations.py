"""Durations as text: what is accepted, what is refused, and that nothing is rounded."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncegate.errors import BadDuration
from oncegate.model.durations import format_duration, parse_duration
from tests.support.properties import tried

bounded = tried(80)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1.5h", timedelta(minutes=90)),
        ("0.1s", timedelta(milliseconds=100)),
        ("0.001ms", timedelta(microseconds=1)),
        ("007d", timedelta(days=7)),
    ],
)
def test_text_gives_the_duration_it_says(text: str, expected: timedelta) -> None:
    """Each unit and decimals are read exactly."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "m",
        "0s",
        "0.0h",
        "-5s",
        "+5s",
        "5 s",
        " 5s",
        "5s ",
        "5s\n",
        "5M",
        "5min",
        "1h30m",
        ".5h",
        "5.h",
        "1e3s",
        "1_000s",
        "inf",
        "\u0665s",
        "\uff15s",
        "999999999999w",
        "9" * 5000 + "s",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """A text that is not one positive number with one unit never becomes a duration."""
    with pytest.raises(BadDuration):
        parse_duration(text)


def test_refusal_names_the_text_and_what_is_accepted() -> None:
    """The message alone is enough to repair the setting."""
    with pytest.raises(BadDuration, match=r"'5 minutes'.*ms, s, m, h, d, w"):
        parse_duration("5 minutes")


def test_refusal_shows_at_most_forty_characters() -> None:
    """An absurd text is not repeated in full."""
    with pytest.raises(BadDuration) as refused:
        parse_duration("9" * 1000)
    assert "9" * 40 not in str(refused.value)


def test_finer_than_a_microsecond_is_refused_and_not_rounded() -> None:
    """A duration that cannot be kept exactly is not kept at all."""
    with pytest.raises(BadDuration, match="finer than a microsecond"):
        parse_duration("0.0001ms")


@pytest.mark.parametrize("value", [timedelta(0), timedelta(seconds=-1)])
def test_timedelta_must_be_positive_too(value: timedelta) -> None:
    """Passing a timedelta instead of a text does not get around the check."""
    with pytest.raises(BadDuration):
        parse_duration(value)


def test_positive_timedelta_passes_unchanged() -> None:
    """Settings may hold a timedelta already."""
    assert parse_duration(timedelta(days=3)) == timedelta(days=3)


@pytest.mark.parametrize("value", [5, 5.0, None, b"5s", pytest.param(10**5000, id="huge")])
def test_other_types_are_refused(value: Any) -> None:
    """A bare number has no unit, so it is not a duration."""
    with pytest.raises(BadDuration):
        parse_duration(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (timedelta(days=14), "2w"),
        (timedelta(days=90), "90d"),
        (timedelta(minutes=90), "90m"),
        (timedelta(milliseconds=1500), "1500ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(microseconds=1), "0.001ms"),
        (timedelta(0), "0s"),
        (timedelta(minutes=-5), "-5m"),
    ],
)
def test_format_uses_the_largest_exact_unit(value: timedelta, expected: str) -> None:
    """People see the unit they would have written."""
    assert format_duration(value) == expected


@bounded
@given(st.timedeltas(min_value=timedelta(microseconds=1)))
@example(timedelta.max)
def test_format_and_parse_are_inverse(value: timedelta) -> None:
    """Every positive duration survives being written and read, to the microsecond."""
    assert parse_duration(format_duration(value)) == value


@bounded
@given(st.text(max_size=40))
def test_arbitrary_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    """No text makes the parser fail in any other way."""
    with contextlib.suppress(BadDuration):
        assert parse_duration(text) > timedelta(0)
