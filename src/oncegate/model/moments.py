"""A moment as people write it: how long ago, or a time with its offset."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from oncegate.errors import BadDuration, BadTimestamp, UsageError
from oncegate.model.durations import parse_duration
from oncegate.model.timestamps import parse_timestamp

_NO_SECONDS: Final = re.compile(r"(?<=[Tt][0-9]{2}:[0-9]{2})(?=[Zz+-])")


def read_moment(text: str, now_ms: int) -> int:
    """Reads `2h` (two hours ago) or `2026-11-18T02:00Z` as milliseconds; raises UsageError for others."""
    text = text.strip()
    try:
        return now_ms - parse_duration(text) // timedelta(milliseconds=1)
    except BadDuration:
        pass
    try:
        moment = parse_timestamp(_NO_SECONDS.sub(":00", text))
    except BadTimestamp:
        raise UsageError(
            f"{text[:40]!r} is no moment; write how long ago, such as 90m, 2h or 3d,"
            " or a time with its offset, such as 2026-11-18T02:00Z"
        ) from None
    return int(moment.timestamp() * 1000)
