"""Replays as they were ordered, how far each has come, and how it ended.

An order is written with the first deliveries that are planted under its nonce, in the same transaction, and
stays after the last of them has gone. A cancelled one gets no more deliveries from any process.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

from msgspec import Struct

from oncegate.store.lane_desk import LaneName, replay_name

LEFT_COUNTED_MAX: Final = 100_000  # what is left of a replay is counted so far and no further
RUNNING_MAX: Final = 1_000  # replays under way that are looked at


class ReplayState(Enum):
    """What became of a replay; the values are words for people."""

    RUNNING = "running"
    ENDED = "ended"
    CANCELLED = "cancelled"


class ReplayOrder(Struct, frozen=True):
    """A replay: of one lane, or of a destination's. `number` grows with time.

    `left` counts deliveries that have not gone yet, up to one more than LEFT_COUNTED_MAX. `at_ms` is None,
    and no person is named, where a replay was under way before orders were kept.
    """

    number: int
    nonce: int
    destination: str
    lane: LaneName | None
    seq_from: int
    seq_to: int | None
    only_dead: bool
    at_ms: int | None
    actor: str
    reason: str
    deliveries: int
    lanes: int
    left: int
    taken_back: int = 0
    cancelled_at_ms: int | None = None
    cancelled_by: str | None = None
    cancelled_why: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    type: str | None = None

    @property
    def name(self) -> str:
        """The nonce as the log, the command line and `x-replay` spell it."""
        return replay_name(self.nonce)

    @property
    def state(self) -> ReplayState:
        """Cancelled is said even while its last delivery in flight ends."""
        if self.cancelled_at_ms is not None:
            return ReplayState.CANCELLED
        return ReplayState.RUNNING if self.left else ReplayState.ENDED

    @property
    def is_left_counted(self) -> bool:
        """Whether all that is left was counted."""
        return self.left <= LEFT_COUNTED_MAX

    @property
    def gone(self) -> int:
        """How many deliveries are behind it: acknowledged, given up again or skipped."""
        return max(0, self.deliveries - self.taken_back - self.left)


class ReplayFilter(Struct, frozen=True):
    """Which replays to list; every field that is None is not asked for.

    A lane's are those of it alone, and the one that it is in now. A tenant's are those of one of its lanes.
    """

    destination: str | None = None
    tenant: str | None = None
    lane_id: int | None = None
    nonce: int | None = None
    only_running: bool = False


class Replays(Protocol):
    """The list of replays."""

    def replay_orders(self, wanted: ReplayFilter, before: int | None, limit: int) -> list[ReplayOrder]:
        """Lists replays, the latest first, before a number."""
