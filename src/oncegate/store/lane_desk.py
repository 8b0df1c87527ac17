"""The lanes' desk: what operators do to lanes and destinations, what they look at, and what is pruned.

Every action names who and why, is fenced (it names the seq it means), and leaves one log record, under the
negative number of its lane. Asked for twice, it happens once.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from oncegate.store.lanes import DestinationState, LaneState

REPLAY_SAMPLE: Final = 5


class HeadOrder(Struct, frozen=True):
    """An operator's order about a lane's head, which must be `seq`."""

    lane_id: int
    seq: int
    actor: str
    reason: str
    at_ms: int


class HeadAnswer(Enum):
    """What came of an operator's order."""

    DONE = "done"
    NOT_HEAD = "not the head of its lane"
    IN_FLIGHT = "in flight; try again when the attempt has ended"
    UNKNOWN = "no such lane"


class Steering(Struct, frozen=True):
    """Asks to pause, disable or resume a destination."""

    destination: str
    state: DestinationState
    actor: str
    reason: str
    at_ms: int


class ReplayWanted(Struct, frozen=True):
    """Asks for past deliveries once more: of one lane or of a destination's, all or dead letters only.

    `since_ms` and `until_ms` name the time in which the events were emitted, the second moment not
    included; `type` names the type of event.

    `nonce` names the replay. Lanes are taken in order of their numbers after `after_lane`, at most `limit`
    of them a call. `dry_run` only counts. Of replays that are over, the latest `kept_max` stay on the list.
    """

    destination: str
    nonce: int
    actor: str
    reason: str
    at_ms: int
    lane_id: int | None = None
    seq_from: int = 1
    seq_to: int | None = None
    only_dead: bool = False
    after_lane: int = 0
    limit: int = 100
    deliveries_max: int = 1_000
    dry_run: bool = False
    kept_max: int = 10_000
    since_ms: int | None = None
    until_ms: int | None = None
    type: str | None = None


class Replaying(Struct, frozen=True):
    """How many deliveries of how many lanes are (or would be) replayed, and how to go on.

    `refused` counts lanes that are in the middle of another replay. `is_cut` says that a lane had more
    than `deliveries_max` deliveries to replay; those after the first so many were left out. Of a replay
    that was cancelled nothing is planted any more. `sample` has the first few lanes, each with how many
    deliveries.
    """

    deliveries: int
    lanes: int
    refused: int
    last_lane: int
    is_end: bool
    is_cut: bool = False
    is_cancelled: bool = False
    sample: tuple[tuple[int, int], ...] = ()


def replay_name(nonce: int) -> str:
    """A replay's nonce as people and receivers see it."""
    return f"{nonce:x}"


class LaneName(NamedTuple):
    """What a lane is called, which stays."""

    destination: str
    tenant: str
    key: str


class LaneView(Struct, frozen=True):
    """A lane as people see it. `next_try_in_ms` is 0 or less where it is due; None where nothing is."""

    lane_id: int
    destination: str
    tenant: str
    key: str
    state: LaneState
    head_seq: int
    last_seq: int
    attempts: int
    error: str | None
    next_try_in_ms: int | None
    oldest_created_at_ms: int | None
    replaying_seq: int | None = None

    @property
    def due_seq(self) -> int:
        """The seq that goes next, or blocks its lane: of a replay, else the head. Orders must name it."""
        return self.head_seq if self.replaying_seq is None else self.replaying_seq

    @property
    def waiting_behind(self) -> int:
        """How many events stand behind the head."""
        return max(0, self.last_seq - self.head_seq)


class LaneFilter(Struct, frozen=True):
    """Which lanes to list; every field that is None is not asked for.

    `idle_upto` lists idle lanes too, with numbers up to this one: there may be very many, and no index
    leads to those of a destination or to a part of a key.
    """

    destination: str | None = None
    tenant: str | None = None
    key: str | None = None
    states: tuple[LaneState, ...] = ()
    key_contains: str | None = None
    idle_upto: int | None = None


class DeliveryView(Struct, frozen=True):
    """One event of a lane: acknowledged, a dead letter, or still to come."""

    lane_id: int
    seq: int
    event_id: str
    type: str
    created_at_ms: int
    acknowledged_at_ms: int | None
    attempts: int
    note: str | None
    is_dead: bool


class DeadLetter(Struct, frozen=True):
    """A delivery that was given up."""

    lane_id: int
    seq: int
    destination: str
    tenant: str
    key: str
    event_id: str
    type: str
    created_at_ms: int
    given_up_at_ms: int
    attempts: int
    error: str
    is_head: bool


class DestinationView(Struct, frozen=True):
    """A destination's state and lag: lanes by state, events not done, and the oldest head's time.

    `oldest_blocked_at_ms` is since when the lane that was blocked first is so.
    """

    name: str
    state: DestinationState
    reason: str | None
    since_ms: int | None
    throttled_for_ms: int
    waiting: int
    leased: int
    blocked: int
    events: int
    oldest_created_at_ms: int | None
    dead_letters: int
    oldest_blocked_at_ms: int | None = None


class LanePruning(Struct, frozen=True):
    """Asks to remove what was acknowledged before a moment, of the next `limit` lanes after a number.

    Without a destination, of all.
    """

    destination: str | None
    before_ms: int
    after_lane: int = 0
    limit: int = 100
    deliveries_max: int = 1_000


class LanePruned(Struct, frozen=True):
    """How many deliveries were removed, and how to go on."""

    removed: int
    last_lane: int
    is_end: bool


class LaneDesk(Protocol):
    """Operators' verbs, lists and pruning."""

    def steer(self, wanted: Steering) -> bool:
        """Sets a destination's state, with one log record; False and no record if it has that state.

        Events of a paused or disabled destination are kept. Resuming ends a throttle too.
        """

    def retry_head(self, order: HeadOrder) -> HeadAnswer:
        """Makes a blocked or waiting head due now, with all attempts before it; no dead letter now."""

    def skip_head(self, order: HeadOrder) -> HeadAnswer:
        """Leaves the head out finally and lets the next event go. It stays, or becomes, a dead letter."""

    def replay(self, wanted: ReplayWanted) -> Replaying:
        """Delivers past events of lanes once more, in order, before anything newer of the same lane goes.

        Only what is before the head can be replayed. A lane is in one replay at a time.
        """

    def cancel_replay(self, nonce: int, actor: str, reason: str, at_ms: int) -> int:
        """Takes back what is not delivered or leased of a replay; tells how many deliveries."""

    def find_lane(self, destination: str, tenant: str, key: str) -> LaneView | None:
        """Reads one lane by its key."""

    def lane_names(self, lane_ids: Sequence[int]) -> dict[int, LaneName]:
        """Tells what lanes are called; leaves out numbers that no lane has."""

    def lanes(self, wanted: LaneFilter, after_lane: int, limit: int) -> list[LaneView]:
        """Lists lanes in order of their numbers; without a key or `idle_upto`, those that are not idle."""

    def deliveries(self, lane_id: int, seq_from: int, limit: int) -> list[DeliveryView]:
        """Lists a lane's events from a seq on."""

    def dead_letters(self, wanted: LaneFilter, after: tuple[int, int], limit: int) -> list[DeadLetter]:
        """Lists dead letters after a (lane, seq), in that order."""

    def destinations(self) -> list[DestinationView]:
        """Tells the state and lag of every destination that has lanes or was ever steered."""

    def waiting_at(self, destination: str) -> int:
        """Counts the events of a destination that are not done; looks at each lane that is not idle."""

    def prune_deliveries(self, wanted: LanePruning) -> LanePruned:
        """Removes deliveries that were acknowledged before a moment, in one short step.

        Dead letters, what is to be replayed and what is not done stay; so do lanes, whose seqs go on.
        """
