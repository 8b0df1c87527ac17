"""Lanes: ordered work, one delivery under way for each destination and key, and the values that this takes.

A *lane* is (tenant, destination, key). Every event in it has a seq, counted from 1 without gaps, in order
of commits. Only the *head*, the first event that is not done, may be delivered; it is leased under a fence
that grows with every lease, to a holder with a random number that no other lease of the lane has. Every
write about it names both: a ledger that went back gives fences out again (I23). Events behind the head cost
nothing.

Workers use this file's protocol; `lane_desk.py` has what operators and workers do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, IntEnum
from typing import Final, Protocol

from msgspec import Struct

from oncegate.errors import BadOutgoing
from oncegate.model.states import Stored

# How soon a lane is looked at again whose next event may be in a transaction that is still open.
MAYBE_MORE_MS: Final = 50
LANE_BACKLOG_MAX: Final = 100_000
NO_BACKLOG_MAX: Final = 2**31 - 1
NAME_BYTES_MAX: Final = 2_000  # of a key or an event's id: what every store can index
ENQUEUER: Final = "enqueue"  # who the log says has met a conflict


class LaneState(Stored):
    """What a lane's head waits for. The numbers are stored; never renumber."""

    IDLE = 1
    WAITING = 2
    LEASED = 3
    BLOCKED = 4

    @property
    def label(self) -> str:
        """The state's name for people."""
        return self.name.lower()


class DestinationState(Stored):
    """Whether a destination's lanes are worked on. The numbers are stored; never renumber."""

    ACTIVE = 1
    PAUSED = 2
    DISABLED = 3

    @property
    def label(self) -> str:
        """The state's name for people."""
        return self.name.lower()


class Policy(IntEnum):
    """What a lane does about a dead letter. The numbers are stored; never renumber."""

    BLOCK = 1
    ADVANCE = 2


class Outgoing(Struct, frozen=True, gc=False):
    """An event to be put at the end of its lane.

    `event_id` is unique for each destination. `fingerprint` stands for the content: the same id with
    another one is a conflict. `context` travels with the event as it is (headers, trace context). A lane in
    which `backlog_max` events wait takes no more. Keys and ids that no store could index raise BadOutgoing.
    """

    destination: str
    tenant: str
    key: str
    event_id: str
    type: str
    payload: bytes
    fingerprint: bytes
    created_at_ms: int
    context: bytes = b""
    backlog_max: int = LANE_BACKLOG_MAX

    def __post_init__(self) -> None:
        if not (_is_nameable(self.key) and _is_nameable(self.event_id)):
            raise BadOutgoing(f"the key or the id is not Unicode of 1 to {NAME_BYTES_MAX} bytes")


def _is_nameable(text: str) -> bool:
    if text.isascii():
        return 0 < len(text) <= NAME_BYTES_MAX
    try:
        return len(text.encode()) <= NAME_BYTES_MAX
    except UnicodeEncodeError:
        return False


class Placing(Enum):
    """What became of an event that was to be enqueued."""

    NEW = "new"
    KNOWN = "known"
    CONFLICT = "conflict"
    FULL = "full"


def conflict_note(event: Outgoing) -> str:
    """What the log says about an event whose id is known with another content; never the content."""
    return f"event {event.event_id[:200]}: known with another content"


class Placed(Struct, frozen=True, gc=False):
    """Where an event stands: its own place, or that of the first event with its id; nowhere if FULL."""

    placing: Placing
    lane_id: int
    seq: int


class HeadsWanted(Struct, frozen=True):
    """Asks for heads to deliver, at most so many of each destination. `holder` is a random number."""

    wanted: tuple[tuple[str, int], ...]
    lease_ms: int
    holder: int


class Delivery(Struct, frozen=True, gc=False):
    """A leased head: one attempt at bringing one event to its destination.

    `attempt` counts from 1. `nonce` is set where an operator asked for this event once more.
    `previous_seq` is set where what came right before was given up: the last seq before that, or 0.
    """

    lane_id: int
    fence: int
    holder: int
    destination: str
    tenant: str
    key: str
    seq: int
    attempt: int
    event_id: str
    type: str
    payload: bytes
    context: bytes
    created_at_ms: int
    lease_until_ticks: int
    nonce: int | None = None
    previous_seq: int | None = None


class Heads(Struct, frozen=True):
    """The heads that were leased, and when the next one is due that was not yet, if any."""

    deliveries: tuple[Delivery, ...]
    now_ticks: int
    next_due_ticks: int | None


class HeadHeld(Struct, frozen=True, gc=False):
    """A leased head, named by lane, fence and holder; with `lease_ms` where the lease is to be extended."""

    lane_id: int
    fence: int
    holder: int
    lease_ms: int = 0


class Acknowledgement(Struct, frozen=True, gc=False):
    """Says that a head was delivered. With `lease_ms` the next event is leased to `next_holder` at once."""

    lane_id: int
    seq: int
    fence: int
    holder: int
    event_id: str
    at_ms: int
    note: str = ""
    lease_ms: int = 0
    next_holder: int = 0


class Failure(Struct, frozen=True, gc=False):
    """Says that an attempt failed and when to try again; without `counts` it uses no attempt up."""

    lane_id: int
    fence: int
    holder: int
    retry_in_ms: int
    error: str
    counts: bool = True


class GivenUp(Struct, frozen=True, gc=False):
    """Says that a head is a dead letter. With ADVANCE, the next event may be leased as after an ack."""

    lane_id: int
    seq: int
    fence: int
    holder: int
    event_id: str
    at_ms: int
    error: str
    policy: Policy
    actor: str
    lease_ms: int = 0
    next_holder: int = 0


class Advanced(Struct, frozen=True, gc=False):
    """Whether the lease was still ours, and the next event of the lane if it was leased at once."""

    done: bool
    successor: Delivery | None = None


class Throttling(Struct, frozen=True, gc=False):
    """Asks to leave a destination alone for a while."""

    destination: str
    for_ms: int


class Lanes(Protocol):
    """Ordered work. Leases are in the ledger's own time."""

    def enqueue(self, events: Sequence[Outgoing]) -> list[Placed]:
        """Puts each event at the end of its lane and tells its seq.

        Seqs of a lane have no gaps and follow the order of commits; an enqueueing transaction that is
        undone leaves none behind. An id that is known at the destination is not enqueued again: the answer
        is the place of the first, KNOWN, or CONFLICT where its fingerprint is another; a conflict has a log
        record under the negative number of its lane. The same id twice in `events` is one event. A lane
        that was idle has its head ready at once. A new event whose lane has `backlog_max` waiting already
        is FULL: nothing is stored, no seq is used. Events that are enqueued at the same time may go beyond
        that by their own number.
        """

    def lease_heads(self, wanted: HeadsWanted) -> Heads:
        """Leases heads that may go now, longest due first.

        Eligible is the head of a lane that waits and is due, or whose lease has expired, at a destination
        that is active and not throttled. Attempts do not grow by leasing. The cost depends on how many are
        leased, not on how many lanes there are, wait or are blocked.
        """

    def leased_by(self, holders: Collection[int]) -> list[Delivery]:
        """Reads the heads that are leased to some holders, for asking after a doubtful commit."""

    def finish(self, acks: Sequence[Acknowledgement]) -> list[Advanced]:
        """Records deliveries and moves each lane on by one, where fence and holder are still right.

        The next event is ready at once: leased to the next holder if that was asked for and its destination
        may be worked on, else to be leased by any worker. An old fence or another holder changes nothing.
        """

    def fail(self, failures: Sequence[Failure]) -> list[bool]:
        """Ends leases whose attempt failed; the head is due again later."""

    def release(self, held: Sequence[HeadHeld]) -> list[bool]:
        """Gives leased heads back, ready at once, without an attempt used up."""

    def extend(self, held: Sequence[HeadHeld]) -> list[bool]:
        """Extends leases by `lease_ms` from now."""

    def dead_letter(self, given_up: Sequence[GivenUp]) -> list[Advanced]:
        """Records dead letters, each with one log record. BLOCK blocks the lane, ADVANCE moves it on."""

    def throttle(self, wanted: Throttling) -> None:
        """Leaves a destination alone until so much time has passed; a longer throttle is not shortened."""

    def lease_ended(self, ended: Acknowledgement | GivenUp) -> bool:
        """Tells whether a lease of this event was ended under this fence, as far as that can still be seen.

        For asking after a doubtful commit. A failure may no longer show once another worker has the head.
        """
