"""What a destination can say about one attempt. Plain values."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

WAIT_SECONDS_MAX: Final = 24 * 3600.0  # a destination's own wish is obeyed up to here
ERROR_CHARS_MAX: Final = 500


class Delivered(Struct, frozen=True, gc=False):
    """The destination has it; `note` is kept beside it, such as a status."""

    note: str = ""


class RetryLater(Struct, frozen=True):
    """The attempt failed. With `after_seconds`, not before that has passed."""

    error: str
    after_seconds: float = 0.0
    status: int | None = None


class Unreached(Struct, frozen=True):
    """The destination was not reached, so nothing happened there: no attempt is used up."""

    error: str


class Dead(Struct, frozen=True):
    """Trying again is pointless: a dead letter at once."""

    error: str


class Throttle(Struct, frozen=True):
    """The destination wants to be left alone for a while; the attempt does not count."""

    error: str
    after_seconds: float
    status: int | None = None


class NotYet(Struct, frozen=True):
    """It is not this event's time: its lane waits, and no attempt is used up."""

    reason: str
    after_seconds: float
    status: int | None = None


class Disable(Struct, frozen=True):
    """The destination wants nothing more; its events are kept until an operator resumes it."""

    error: str
    status: int | None = None


Outcome: TypeAlias = Delivered | RetryLater | Unreached | Dead | Throttle | Disable | NotYet


class Tried(Struct, frozen=True, gc=False):
    """What came of one attempt, and how long it took."""

    outcome: Outcome
    took_ms: int


def clamp_ms(seconds: float) -> int:
    """A wait that a destination asked for, within limits and in milliseconds; nonsense is no wait."""
    if not 0 <= seconds <= WAIT_SECONDS_MAX:
        seconds = WAIT_SECONDS_MAX if seconds > WAIT_SECONDS_MAX else 0.0
    return int(seconds * 1000)


def short(error: str) -> str:
    """An error as it is kept: of any length and any characters, or its attempt could not be recorded."""
    if len(error) <= ERROR_CHARS_MAX and error.isascii():
        return error
    return error[:ERROR_CHARS_MAX].encode("utf-8", "replace").decode()
