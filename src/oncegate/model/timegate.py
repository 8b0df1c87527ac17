"""How far an event's own time is from ours.

Called by the gate for keys it has not seen before; a late repeat of a known key is a replay and is
never judged here. Must never take part in deciding whether an event is a duplicate: the distance
only sends a new event to quarantine.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from oncegate.model.timestamps import to_utc


class Direction(Enum):
    """Which side of our clock the event's time lies on."""

    PAST = "past"
    FUTURE = "future"


@dataclass(frozen=True, slots=True)
class Skew:
    """An event's time that is too far from our clock."""

    distance: timedelta
    direction: Direction


def judge_time(occurred_at: datetime, now: datetime, skew_max: timedelta) -> Skew | None:
    """Return the skew when the distance is more than `skew_max`, None when it is within it."""
    if skew_max < timedelta(0):
        raise ValueError("skew_max must not be negative")
    ahead = to_utc(occurred_at) - to_utc(now)
    if abs(ahead) <= skew_max:
        return None
    return Skew(abs(ahead), Direction.FUTURE if ahead > timedelta(0) else Direction.PAST)
