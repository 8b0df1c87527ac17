"""Points in time on the wire: strict RFC 3339 in, one canonical UTC form out.

Called by key templates, the time gate, the retention rules and everything that stores or shows a
time. Must never guess an offset, never consult a clock or a time zone database, and never repeat
the offending text in an error, since it may be personal data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from oncegate.errors import BadTimestamp

_TEXT_LENGTH_MAX: Final = 64
_FRACTION_DIGITS_MAX: Final = 9
_SHAPE: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]+))?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)


def parse_timestamp(text: object) -> datetime:
    """Return the instant that an RFC 3339 text with an explicit offset names, in UTC."""
    if not isinstance(text, str):
        raise BadTimestamp(f"expected a text in RFC 3339, got {type(text).__name__[:40]}")
    match = _SHAPE.fullmatch(text) if len(text) <= _TEXT_LENGTH_MAX else None
    if match is None:
        raise BadTimestamp("malformed: write it in RFC 3339, such as 2024-05-31T22:14:07Z")
    offset = _parse_offset(match.group(8))
    microsecond = _parse_fraction(match.group(7))
    local = [int(digits) for digits in match.groups()[:6]]
    if local[5] == 60:
        return _after_leap_second(_in_utc([*local[:5], 59], 0, offset))
    return _in_utc(local, microsecond, offset)


def format_timestamp(moment: datetime) -> str:
    """Return `moment` as RFC 3339 in UTC, in milliseconds, or microseconds where it has any."""
    in_utc = to_utc(moment)
    precision = "microseconds" if in_utc.microsecond % 1_000 else "milliseconds"
    return in_utc.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def to_utc(moment: datetime) -> datetime:
    """Return the same instant in UTC; a naive datetime is refused with ValueError.

    Two datetimes of one zone are compared and subtracted by their wall clocks, which is wrong
    across a DST change, so every rule on time converts first.
    """
    if moment.utcoffset() is None:
        raise ValueError("naive datetime: an instant needs an explicit offset")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("datetime is outside the years 1 to 9999 in UTC") from None


def _in_utc(local: Sequence[int], microsecond: int, offset: timedelta) -> datetime:
    year, month, day, hour, minute, second = local
    try:
        moment = datetime(year, month, day, hour, minute, second, microsecond, tzinfo=UTC)
        return moment - offset
    except (ValueError, OverflowError):
        raise BadTimestamp("out of range: no such date or time of day") from None


def _parse_offset(text: str | None) -> timedelta:
    if text is None:
        raise BadTimestamp("no offset: end it with Z or an offset such as +02:00")
    if text in ("Z", "z"):
        return timedelta(0)
    # RFC 3339 gives -00:00 the meaning "the local offset is not known", which is what we refuse.
    if text == "-00:00":
        raise BadTimestamp("offset -00:00 says that the offset is unknown; send Z or the real one")
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 23 or minutes > 59:
        raise BadTimestamp("offset out of range: at most 23:59")
    size = timedelta(hours=hours, minutes=minutes)
    return -size if text[0] == "-" else size


def _parse_fraction(digits: str | None) -> int:
    if digits is None:
        return 0
    if len(digits) > _FRACTION_DIGITS_MAX:
        raise BadTimestamp(f"more than {_FRACTION_DIGITS_MAX} digits after the second")
    return int(digits[:6].ljust(6, "0"))


def _after_leap_second(second_before: datetime) -> datetime:
    """Return the first instant after a leap second, whose own fraction has no place in UTC here."""
    if (second_before.hour, second_before.minute) != (23, 59):
        raise BadTimestamp("second 60 exists only as a leap second, at 23:59:60 UTC")
    try:
        return second_before + timedelta(seconds=1)
    except OverflowError:
        raise BadTimestamp("out of range: later than the year 9999") from None
