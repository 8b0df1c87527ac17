"""Tallies: what the gate has seen, counted by surface and minute, and the repeats of single entries.

Observations, not decisions: nothing that keeps an effect from happening twice reads them. They are written
about once a second, so that a killed process loses what it saw in its last second.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import ceil, log2
from typing import Final, Protocol

from msgspec import Struct

from oncegate.model.repeats import RepeatClass
from oncegate.model.states import State
from oncegate.store.resources import ResourceSeen

LATENCY_BUCKETS: Final = 18  # 0.25 ms, 0.5 ms, 1 ms … 16 s and more
LATENCY_FIRST_US: Final = 250
_LATENCY: Final = 100
_CLASS: Final = 50
_REASON: Final = 20
# First words of reasons for quarantine. Their places are stored: only append, up to thirty.
_REASONS: Final = (
    "other",
    "key_input",
    "tenant_input",
    "bad_time",
    "skew",
    "content_input",
    "beyond_retention",
    "conflict",
    "lane_input",
    "event_input",
)
_OBSERVED: Final = 120
_OBSERVED_REASON: Final = 140
_DELAY: Final = 170
DELAY_BUCKETS: Final = 30  # 1 s and less, then each twice as long, up to 17 years
_GAUGE: Final = 200
_DELIVERY: Final = 400
_DURATION: Final = 410
DURATION_BUCKETS: Final = 36  # 1 ms and less, then each longer by the square root of two, up to 3 min


class What(IntEnum):
    """What is counted. The numbers are stored; never renumber.

    AWAITED is a replay of an event that was not done when its sender came before.

    From 20 on: new events in quarantine by reason (`of_reason`). From 51 on: repeats by class
    (`of_class`). From 100 on: reservations by how long they took (`of_latency`), with their microseconds
    as the total. From 121 on: arrivals of surfaces that observe, by what they would have been
    (`of_observed`), and from 140 on by the reason for a quarantine. From 170 on: repeats by how long
    after the first arrival they came (`of_delay`). From 200 on: gauges as a watch read them off
    (`of_gauge`), with their values as the total; these are of no surface. From 400 on: attempts to deliver
    to a destination that succeeded or failed (`of_delivery`); from 410 on those that succeeded, by how long
    they took (`of_duration`).
    """

    FRESH = 1
    RETRY = 2
    RECOVER = 3
    REPLAY = 4
    BUSY = 5
    CONFLICT = 6
    HOLD = 7
    QUARANTINED = 8
    QUARANTINED_AGAIN = 9
    RECONCILED = 10
    LOST = 11
    HELD = 12
    KEYLESS = 13
    AWAITED = 14
    PAUSED = 15
    FAILED = 16  # ended as failed, by what a handler raised


# Arrivals of keys that were known and settled, or in front of a person.
REPEATS: Final = frozenset({What.REPLAY, What.CONFLICT, What.HOLD, What.QUARANTINED_AGAIN})
# Arrivals of events that were not done when their sender came before: it was asked to come again.
RETRIES: Final = frozenset({What.RETRY, What.RECOVER, What.BUSY, What.AWAITED})
ARRIVALS: Final = REPEATS | RETRIES | {What.FRESH, What.QUARANTINED, What.HELD}


def of_reason(reason: str | None) -> int:
    """The number under which a new event is counted that is in quarantine for this reason."""
    word = (reason or "").partition(":")[0]
    return _REASON + (_REASONS.index(word) if word in _REASONS else 0)


def reason_of(what: int) -> str | None:
    """The reason that a number stands for, if it stands for one."""
    place = what - _REASON
    return _REASONS[place] if 0 <= place < len(_REASONS) else None


def of_observed(what: What) -> int:
    """The number under which an observed arrival is counted that would have been this."""
    return _OBSERVED + what.value


def of_observed_reason(reason: str) -> int:
    """The number under which an observed arrival is counted that would be in quarantine for this reason."""
    return of_reason(reason) - _REASON + _OBSERVED_REASON


def observed_reason(what: int) -> str | None:
    """The reason for a quarantine that did not happen that a number stands for, if it stands for one."""
    place = what - _OBSERVED_REASON
    return _REASONS[place] if 0 <= place < len(_REASONS) else None


def of_delay(milliseconds: int) -> int:
    """The number under which a repeat is counted that came so long after the first arrival."""
    return _DELAY + min(DELAY_BUCKETS - 1, (max(0, milliseconds - 1) // 1000).bit_length())


def delay_bound_seconds(what: int) -> int | None:
    """Within how many seconds the repeats came that a number stands for, if it stands for any."""
    bucket = what - _DELAY
    return 1 << bucket if 0 <= bucket < DELAY_BUCKETS else None


def of_class(kind: RepeatClass) -> int:
    """The number under which repeats of a class are counted."""
    return _CLASS + kind.value


def of_latency(microseconds: int) -> int:
    """The number under which a reservation is counted that took so long."""
    return _LATENCY + min(LATENCY_BUCKETS - 1, (microseconds // LATENCY_FIRST_US).bit_length())


def of_gauge(number: int) -> int:
    """The number under which the readings of a gauge are kept."""
    return _GAUGE + number


def of_delivery(*, succeeded: bool) -> int:
    """The number under which attempts to deliver are counted."""
    return _DELIVERY + (not succeeded)


def of_duration(milliseconds: int) -> int:
    """The number under which a delivery is counted that took so long."""
    bucket = ceil(2 * log2(milliseconds)) if milliseconds > 1 else 0
    return _DURATION + min(DURATION_BUCKETS - 1, bucket)


def duration_bound_ms(what: int) -> int | None:
    """The longest time that the deliveries took that a number stands for, if it stands for any."""
    bucket = what - _DURATION
    return round(2 ** (bucket / 2)) if 0 <= bucket < DURATION_BUCKETS else None


def is_gauge(what: int) -> bool:
    """Whether a number stands for what did not happen at a surface: a gauge, or attempts to deliver."""
    return what >= _GAUGE


def class_of(what: int) -> RepeatClass | None:
    """The class of repeats that a number stands for, if it stands for one."""
    try:
        return RepeatClass(what - _CLASS)
    except ValueError:
        return None


def latency_bound_us(what: int) -> int | None:
    """Below which time the reservations took that a number stands for, if it stands for any."""
    bucket = what - _LATENCY
    return LATENCY_FIRST_US << bucket if 0 <= bucket < LATENCY_BUCKETS else None


class Tally(Struct, frozen=True, gc=False):
    """How often something was seen at a surface in one minute since 1970, in UTC."""

    surface: str
    minute: int
    what: int
    count: int
    total: int = 0


class Repeat(Struct, frozen=True, gc=False):
    """Repeats of one class that one entry has had: when first and last, how often, and why we think so."""

    entry_id: int
    kind: RepeatClass
    first_at_ms: int
    last_at_ms: int
    times: int
    evidence: str


class Observations(Struct, frozen=True):
    """What one process has seen since it last told."""

    tallies: tuple[Tally, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    resources: tuple[ResourceSeen, ...] = ()


class Waiting(Struct, frozen=True):
    """Entries of a surface that are not final, by state, kind of reason and time limit for a decision.

    `oldest_ticks` is when the first of them was reserved (in flight) or came into its state, in the
    ledger's own time; None if that was not noted. `oldest_at_ms` is the same in wall time. `lapsed` counts
    those in flight under a lease that is over. `decide_within_ms` is how long their surface gives a person.
    `tried_ms` is the longest time from an arrival to its last failed attempt, where more will follow.
    """

    surface: str
    state: State
    reason: str
    count: int
    oldest_ticks: int | None
    oldest_at_ms: int
    lapsed: int
    decide_within_ms: int | None = None
    tried_ms: int = 0


class Tallies(Protocol):
    """Counters and repeats, added to by many processes at once, and counts of what is open."""

    def observe(self, seen: Sequence[Observations]) -> None:
        """Adds counts and totals to what is there, and repeats to their entries.

        Many sessions may add to the same counters at once; none is lost and none waits for ever. A repeat
        of an entry that is not there (any more) is left out; the latest evidence of a class stays. A second
        resource for one target within its time is kept for a person, with a log record at both entries.
        """

    def tallies(self, from_minute: int, to_minute: int, surface: str | None = None) -> list[Tally]:
        """Returns counters of the minutes from the first up to but without the last, oldest first."""

    def tally_sums(self, from_minute: int, to_minute: int) -> list[Tally]:
        """Returns the sums of those minutes, by surface and kind, each under the first minute asked for."""

    def waiting(self, in_flight: bool | None = None) -> list[Waiting]:
        """Counts entries that are not final: all, only those in flight, or only the others.

        The work grows with those, never with the settled ones.
        """

    def waiting_mark(self) -> bytes | None:
        """Tells for little what differs whenever `waiting(False)` may say something else than before.

        None where that takes no less than asking.
        """

    def clock_ahead_ms(self, wall_ms: int) -> int | None:
        """Tells how far a wall time is ahead of the ledger's own; None where it has no clock of its own."""

    def repeats(self, entry_id: int) -> list[Repeat]:
        """Returns what is known of an entry's repeats, the first seen first."""

    def sender_bugs(self, surface: str | None, limit: int) -> list[Repeat]:
        """Returns repeats that point at a fault of a sender, the latest first."""

    def trim_tallies(self, fold_before: int, forget_before: int, limit: int) -> int:
        """Folds minutes before the first moment into hours, forgets those before the second.

        Looks at no more than `limit` counters of each kind in one call and tells how many it removed.
        """
