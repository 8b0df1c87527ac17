"""Durations as people write them in settings: `30s`, `5m`, `1.5h`, `90d`.

Called by the settings, the surfaces and the command line. Must never round: a text that is not a
whole number of microseconds is refused, so that what was written is what is kept.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from oncegate.errors import BadDuration

_MICROSECONDS_BY_UNIT: Final = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
}
_ACCEPTED: Final = "a positive number and one unit of ms, s, m, h, d, w, such as 30s, 1.5h, 7d"
_TEXT_LENGTH_MAX: Final = 32
_ECHO_LENGTH_MAX: Final = 40
_SHAPE: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?(ms|s|m|h|d|w)")
_MICROSECOND: Final = timedelta(microseconds=1)


def parse_duration(text: str | timedelta) -> timedelta:
    """Return the duration that `text` says, or raise BadDuration; a timedelta is only checked."""
    duration = text if isinstance(text, timedelta) else _parse_text(text)
    if duration <= timedelta(0):
        raise _refusal(text, "is not positive")
    return duration


def format_duration(duration: timedelta) -> str:
    """Return `duration` in the largest unit that divides it; parse_duration reads it back."""
    microseconds = duration // _MICROSECOND
    sign, magnitude = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    if magnitude == 0:
        return "0s"
    for unit, size in _MICROSECONDS_BY_UNIT.items():
        if magnitude % size == 0:
            return f"{sign}{magnitude // size}{unit}"
    return f"{sign}{_as_milliseconds(magnitude)}ms"


def _as_milliseconds(microseconds: int) -> str:
    whole, rest = divmod(microseconds, 1_000)
    return f"{whole}.{rest:03d}".rstrip("0")


def _parse_text(text: object) -> timedelta:
    if not isinstance(text, str):
        raise _refusal(text, "is not a text")
    match = _SHAPE.fullmatch(text) if len(text) <= _TEXT_LENGTH_MAX else None
    if match is None:
        raise _refusal(text, "cannot be read")
    whole, decimals, unit = match.group(1), match.group(2) or "", match.group(3)
    # Integers all the way: a float would turn 0.1s into something that is not 100 ms.
    scaled = int(whole + decimals) * _MICROSECONDS_BY_UNIT[unit]
    microseconds, rest = divmod(scaled, 10 ** len(decimals))
    if rest:
        raise _refusal(text, "is finer than a microsecond")
    return _from_microseconds(microseconds, text)


def _from_microseconds(microseconds: int, text: str) -> timedelta:
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise _refusal(text, "is too long") from None


def _refusal(text: object, problem: str) -> BadDuration:
    return BadDuration(f"duration {_shown(text)} {problem}; write {_ACCEPTED}")


def _shown(text: object) -> str:
    if isinstance(text, timedelta):
        return format_duration(text)
    if not isinstance(text, str):
        return f"of type {type(text).__name__}"
    return ascii(text if len(text) <= _ECHO_LENGTH_MAX else text[: _ECHO_LENGTH_MAX - 3] + "...")
