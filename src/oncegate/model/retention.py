"""How long a key is remembered, as arithmetic on instants.

Called by the gate (too old to judge), the cleanup (may go) and the settings (long enough). Must
never read a clock, and must never let a key expire while an event that it protects against would
still be taken as new.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from oncegate.errors import ConfigError
from oncegate.model.durations import format_duration
from oncegate.model.timestamps import to_utc

# Redrives of dead letters and manual replays come up to two weeks later.
RETENTION_FLOOR: Final = timedelta(days=14)
# Clocks of machines differ, and an arrival may be dated just before its key goes and reserved just after.
FORGET_GRACE: Final = timedelta(hours=1)
LEAP_MAX: Final = timedelta(hours=1)  # a wall clock that gains more than this on the ledger's has leapt
LEAP_BELIEVED_AFTER: Final = timedelta(days=1)  # a leap that lasts is a repair, or a machine that was off
LEAP_BELIEVED_MAX: Final = timedelta(
    days=7
)  # half of the shortest usual retention; beyond, a person says so
_MILLISECOND: Final = timedelta(milliseconds=1)
_END_OF_TIME: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """How long the keys of a surface are remembered; never less than `floor`."""

    retention: timedelta
    floor: timedelta = RETENTION_FLOOR

    def __post_init__(self) -> None:
        if self.retention <= timedelta(0) or self.floor < timedelta(0):
            raise ConfigError("retention must be positive")
        if self.retention < self.floor:
            raise ConfigError(
                f"retention {format_duration(self.retention)} is below the floor of "
                f"{format_duration(self.floor)}; raise it, or lower retention_floor"
            )

    def expires_at(self, received_at: datetime) -> datetime:
        """Return the last instant at which a key received then must still be known."""
        received_utc = to_utc(received_at)
        try:
            return received_utc + self.retention
        except OverflowError:
            return _END_OF_TIME

    def is_expired(self, received_at: datetime, now: datetime) -> bool:
        """Tell whether a key received then may be forgotten."""
        return to_utc(now) > self.expires_at(received_at)

    def is_too_old(self, occurred_at: datetime, now: datetime) -> bool:
        """Tell whether an event of that time may have had a key that is already forgotten.

        The same strict comparison as in is_expired: were one of them not strict, there would be an
        instant at which a key is gone and its replay still counts as new.
        """
        return to_utc(now) - to_utc(occurred_at) > self.retention


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a pruner last saw: wall time beside another clock, and since when it doubts the wall clock.

    `ticks_ms` is the clock that wall time is compared with. `ledger_ms` is the ledger's own time, where
    that is another one: on PostgreSQL the server's clock is a wall clock too.
    """

    wall_ms: int
    ticks_ms: int
    doubted_since_ms: int | None = None
    ledger_ms: int | None = None


def believe(
    last: Sighting | None,
    wall_ms: int,
    ticks_ms: int,
    *,
    ledger_ms: int | None = None,
    newest_ms: int | None = None,
) -> Sighting:
    """Return the sighting whose wall time may be used for forgetting.

    A wall clock that leaps a year ahead makes every key look old, and what is forgotten by mistake runs
    again once the clock is right. So a leap is doubted, and time goes on at the ledger's pace. One of up to
    `LEAP_BELIEVED_MAX` is believed after it has lasted for a day of the ledger's own time. A larger one is
    believed only on a person's word: keys are kept longer meanwhile, which is safe. The first sighting is
    compared with the newest entry, received at `newest_ms`.
    """
    if last is None:
        if newest_ms is None:
            return Sighting(wall_ms, ticks_ms, None, ledger_ms)
        last = Sighting(newest_ms, ticks_ms, None, ledger_ms)
    expected = last.wall_ms + _elapsed_ms(last, ticks_ms, ledger_ms)
    leap_ms = wall_ms - expected
    if leap_ms <= LEAP_MAX // _MILLISECOND:
        return Sighting(wall_ms, ticks_ms, None, ledger_ms)
    since = ticks_ms if last.doubted_since_ms is None else min(last.doubted_since_ms, ticks_ms)
    has_lasted = ticks_ms - since >= LEAP_BELIEVED_AFTER // _MILLISECOND
    if has_lasted and leap_ms <= LEAP_BELIEVED_MAX // _MILLISECOND:
        return Sighting(wall_ms, ticks_ms, None, ledger_ms)
    return Sighting(expected, ticks_ms, since, ledger_ms)


def _elapsed_ms(last: Sighting, ticks_ms: int, ledger_ms: int | None) -> int:
    """How much time has passed; by the ledger's own clock where the other one has leapt as well."""
    elapsed = max(0, ticks_ms - last.ticks_ms)
    if ledger_ms is None or last.ledger_ms is None:
        return elapsed
    by_ledger = max(0, ledger_ms - last.ledger_ms)
    return elapsed if elapsed - by_ledger <= LEAP_BELIEVED_MAX // _MILLISECOND else by_ledger


def forget_before_ms(now_ms: int, retention: timedelta, skew_max: timedelta) -> int:
    """Return the instant before which a key must have been received to be forgotten now.

    An event may be dated up to `skew_max` after its arrival, so the key outlives the retention by that
    much: once it is gone, every replay of its event is older than the retention.
    """
    return now_ms - (retention + skew_max + FORGET_GRACE) // _MILLISECOND


def month_of(moment: datetime) -> tuple[int, int]:
    """Return the year and month, in UTC, that a record of that instant is filed under."""
    in_utc = to_utc(moment)
    return in_utc.year, in_utc.month


def check_horizon(retention: timedelta, redelivery_horizon: timedelta) -> None:
    """Raise ConfigError when a key would be forgotten while its event can still be sent again."""
    if retention >= redelivery_horizon:
        return
    raise ConfigError(
        f"retention {format_duration(retention)} is shorter than the longest re-delivery chain of "
        f"{format_duration(redelivery_horizon)}: an event sent again after its key was forgotten "
        f"would run twice; keep keys for at least {format_duration(redelivery_horizon)}"
    )
