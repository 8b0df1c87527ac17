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
                f"{format_duration(self.floor)}; raise it, or lower the floor on purpose"
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
