"""What an attempt came to, and how long to wait, for any response whatever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.sender.exchange import FailureKind, NoResponse, Phase, Response, printable
from oncegate.sender.responses import Judgement, Result, judge, parse_retry_after

SECOND = timedelta(seconds=1)
DAY = timedelta(hours=24)
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def answer(status: int, retry_after: timedelta | None = None, body: bytes = b"") -> Judgement:
    return judge(Response(status, SECOND, retry_after, body))


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (200, Result.DELIVERED),
        (202, Result.DELIVERED),
        (204, Result.DELIVERED),
        (299, Result.DELIVERED),
        (301, Result.REJECTED),
        (302, Result.REJECTED),
        (304, Result.REJECTED),
        (307, Result.REJECTED),
        (400, Result.REJECTED),
        (401, Result.REJECTED),
        (404, Result.REJECTED),
        (408, Result.FAILED),
        (409, Result.REJECTED),
        (410, Result.GONE),
        (422, Result.REJECTED),
        (425, Result.FAILED),
        (429, Result.THROTTLED),
        (500, Result.FAILED),
        (502, Result.FAILED),
        (503, Result.FAILED),
        (504, Result.FAILED),
        (599, Result.FAILED),
        (199, Result.FAILED),
        (999, Result.FAILED),
    ],
)
def test_a_status_leads_to_its_result(status: int, result: Result) -> None:
    assert answer(status).result is result


def test_503_with_retry_after_throttles_the_endpoint() -> None:
    assert answer(503, SECOND).result is Result.THROTTLED
    assert answer(503, timedelta(0)).result is Result.THROTTLED
    assert answer(500, SECOND).result is Result.FAILED


def test_423_with_retry_after_is_about_one_event() -> None:
    assert answer(423, SECOND).result is Result.LOCKED
    assert answer(423).result is Result.REJECTED


@given(st.integers(100, 999), st.none() | st.timedeltas(timedelta(0), DAY))
def test_only_a_2xx_is_a_delivery_and_only_410_is_the_end(status: int, wait: timedelta | None) -> None:
    found = answer(status, wait).result
    assert (found is Result.DELIVERED) is (200 <= status <= 299)
    assert (found is Result.GONE) is (status == 410)


@given(st.sampled_from(FailureKind), st.sampled_from(Phase), st.booleans())
def test_no_response_is_a_failed_attempt_only_where_a_request_was_sent(kind, phase, was_sent: bool) -> None:
    found = judge(NoResponse(kind, phase, "detail", SECOND, was_sent))
    assert found.result is (Result.FAILED if was_sent else Result.UNREACHED)
    assert kind.value in found.reason
    assert phase.value in found.reason


def test_the_reason_says_what_happened_in_one_line() -> None:
    assert answer(500, body=b"<b>oh\n\nno</b>\x1b[31m").reason == "HTTP 500: <b>oh no</b>\ufffd[31m"
    assert answer(302).reason == "HTTP 302 (redirects are not followed)"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 5 ", 5),
        ("86400", 86_400),
        ("86401", 86_400),
        ("9" * 18, 86_400),
        ("9" * 19, None),
        ("-1", None),
        ("1.5", None),
        ("+5", None),
        ("\uff15", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30),
        ("Sunday, 01-Mar-26 12:00:30 GMT", 30),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("Sun, 01 Mar 2027 12:00:00 GMT", 86_400),
        ("Sun, 01 Mar 2026 12:00:30 +0100", None),
        ("Sun, 99 Mar 2026 12:00:30 GMT", None),
        ("GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_is_clamped(text: str | None, seconds: int | None) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert parse_retry_after(text, NOW) == expected


@given(st.one_of(st.text(), st.text().map("{} GMT".format)))
def test_any_retry_after_is_none_or_within_a_day(text: str) -> None:
    found = parse_retry_after(text, NOW)
    assert found is None or timedelta(0) <= found <= DAY


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_any_http_date_is_read(moment: datetime) -> None:
    moment = moment.replace(microsecond=0)
    found = parse_retry_after(format_datetime(moment, usegmt=True), NOW)
    assert found == min(max(moment - NOW, timedelta(0)), DAY)


@given(st.binary(max_size=3000))
def test_any_body_is_shown_as_one_short_printable_line(body: bytes) -> None:
    shown = printable(body)
    assert len(shown) <= 300
    assert shown.isprintable()


def test_what_turns_a_line_around_is_not_shown() -> None:
    assert printable("a\u202eb\u200bc\x00d\u2028e".encode()) == "a\ufffdb\ufffdc\ufffdd e"
