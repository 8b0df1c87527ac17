"""From what came of a request to what is done next. Pure: the clock and the dice are passed in.

Only a 2xx is a delivery. Everything else is a failed attempt that is made again on the endpoint's schedule;
a receiver that asks for more time gets it, and one that is gone is not called again.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

from msgspec import Struct

from oncegate.sender.exchange import Exchange, NoResponse, Response

RETRY_AFTER_MAX: Final = timedelta(hours=24)  # nobody may park our events for longer
_SECONDS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_DATE_LENGTH_MAX: Final = 64
_WRITTEN: Final = re.compile(
    r"HTTP (?P<status>\d{3})(?: in (?P<took>\d{1,9}) ms| \(redirects are not followed\))?"
    r"(?:: (?P<excerpt>.*))?",
    re.ASCII | re.DOTALL,
)
_EXCERPT: Final = re.compile(
    r"(HTTP \d{3}(?: in \d{1,9} ms| \(redirects are not followed\))?: ).+", re.ASCII | re.DOTALL
)


class Result(Enum):
    """What an attempt came to."""

    DELIVERED = "delivered"  # 2xx
    FAILED = "failed"  # trying again may help: no response, 5xx, 408, 425
    UNREACHED = "unreached"  # no request was sent: no name, no connection, no TLS
    REJECTED = (
        "rejected"  # the receiver does not want it as it is: 3xx, other 4xx; tried again all the same
    )
    THROTTLED = "throttled"  # 429, or 503 with Retry-After: the whole endpoint waits
    LOCKED = "locked"  # 423 with Retry-After: this event waits for something there, and its key with it
    GONE = "gone"  # 410: the endpoint is disabled, its events are kept


class Judgement(Struct, frozen=True):
    """The result of one attempt, why, and the least wait the receiver asked for."""

    result: Result
    reason: str
    wait_min: timedelta = timedelta(0)
    status: int | None = None


def judge(exchange: Exchange) -> Judgement:
    """Decides what an attempt came to."""
    if isinstance(exchange, NoResponse):
        return Judgement(
            Result.FAILED if exchange.was_sent else Result.UNREACHED,
            f"{exchange.kind.value} while {exchange.phase.value}: {exchange.detail}",
        )
    wait = exchange.retry_after or timedelta(0)
    return Judgement(_result_of(exchange), _reason(exchange), wait, exchange.status)


def _result_of(response: Response) -> Result:
    status = response.status
    if 200 <= status < 300:
        return Result.DELIVERED
    if status == 410:
        return Result.GONE
    if status == 429 or (status == 503 and response.retry_after is not None):
        return Result.THROTTLED
    if status == 423 and response.retry_after is not None:
        return Result.LOCKED
    if status in (408, 425) or not 300 <= status < 500:
        return Result.FAILED
    return Result.REJECTED


def _reason(response: Response) -> str:
    hint = " (redirects are not followed)" if 300 <= response.status < 400 else ""
    if _result_of(response) is Result.DELIVERED:  # its acknowledgement is all that is kept of the attempt
        hint = f" in {response.elapsed // timedelta(milliseconds=1)} ms"
    shown = response.shown
    return f"HTTP {response.status}{hint}: {shown}" if shown else f"HTTP {response.status}{hint}"


def without_excerpt(text: str, mask: str) -> str:
    """A line of `judge`, or one with it at its end, without what the receiver wrote."""
    return _EXCERPT.sub(rf"\1{mask}", text)


class Answered(Struct, frozen=True):
    """What a kept line says of a response; `excerpt` is the beginning of its body."""

    status: int
    took_ms: int | None
    excerpt: str


def read_reason(text: str | None) -> Answered | None:
    """Reads back what `judge` wrote about a response; None where the line is about something else."""
    found = _WRITTEN.fullmatch(text or "")
    if found is None:
        return None
    status, took, excerpt = found["status"], found["took"], found["excerpt"]
    return Answered(int(status), None if took is None else int(took), excerpt or "")


def parse_retry_after(text: str | None, now: datetime) -> timedelta | None:
    """Reads `Retry-After`, seconds or an HTTP date, clamped to [0, 24 h]; None if it says neither."""
    if text is None:
        return None
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return timedelta(seconds=min(int(text), int(RETRY_AFTER_MAX.total_seconds())))
    moment = _http_date(text)
    return None if moment is None else min(max(moment - now, timedelta(0)), RETRY_AFTER_MAX)


def _http_date(text: str) -> datetime | None:
    if not text.isascii() or len(text) > _DATE_LENGTH_MAX or not text.endswith("GMT"):
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
    return moment.replace(tzinfo=UTC)
