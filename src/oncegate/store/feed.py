"""The feed: published events in the order of their commits, read by position, acknowledged by readers.

Each tenant has a feed of its own, and positions in it count 1, 2, 3 … without gaps: they say nothing about
other tenants. An event gets its position only once it is committed, so a reader that follows positions
never passes an event that may still commit, and no transaction that stays open holds the others back.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from msgspec import Struct

PAGE_BYTES_MAX: Final = 4 * 1024 * 1024  # of bodies: four of the largest, and a page is made in one piece


class EventToPublish(Struct, frozen=True, gc=False):
    """An event to be published. `event_id` is unique in its tenant's feed; `key` is what `seq` counts.

    `context` is the journey that it belongs to, as it is kept beside an emitted event; it is no content.
    """

    tenant: str
    event_id: str
    key: str
    body: bytes
    fingerprint: bytes
    at_ms: int
    context: bytes = b""


class Publishing(Enum):
    """What became of a publication."""

    NEW = "new"
    KNOWN = "known"
    CONFLICT = "conflict"


class Published(Struct, frozen=True, gc=False):
    """An event's place among those of its key; a conflict has no place."""

    publishing: Publishing
    seq: int


class FeedEvent(Struct, frozen=True, gc=False):
    """One event as readers get it."""

    position: int
    event_id: str
    key: str
    seq: int
    body: bytes
    at_ms: int
    context: bytes = b""


class FeedWanted(Struct, frozen=True, gc=False):
    """Asks for events after a position; None means after what the reader has acknowledged.

    `limit` is of events, `bytes_max` of their bodies together.
    """

    tenant: str
    reader: str
    after: int | None
    limit: int
    bytes_max: int = PAGE_BYTES_MAX


class FeedPage(Struct, frozen=True):
    """Events after a position. `floor` is the last position that was removed, `last` the last given out."""

    after: int
    events: tuple[FeedEvent, ...]
    floor: int
    last: int


class FeedAck(Struct, frozen=True, gc=False):
    """Says that a reader has dealt with everything up to a position."""

    tenant: str
    reader: str
    position: int
    at_ms: int


class Acked(Struct, frozen=True, gc=False):
    """Where the reader stands now, and whether this acknowledgement moved it."""

    position: int
    moved: bool


class ReaderPosition(Struct, frozen=True):
    """Where a reader stands: how many events it has not acknowledged, and since when the oldest waits."""

    tenant: str
    reader: str
    position: int
    acked_at_ms: int
    behind: int
    oldest_at_ms: int | None


class FeedFacet(Protocol):
    """Published events and their readers."""

    def publish(self, wanted: Sequence[EventToPublish]) -> list[Published]:
        """Adds events, in order, and returns one answer each.

        A new event gets the next seq of its key, without gaps, whatever is undone meanwhile. A known id
        with the same fingerprint changes nothing and gets its seq; with another one it is a conflict.
        Events of one key appear in the feed in the order of their seq.
        """

    def read_feed(self, wanted: FeedWanted) -> FeedPage:
        """Returns events after a position in the order of positions, as many as there are up to the limits.

        If there is an event, there is one in the page, however large. What is beyond `bytes_max` is not
        brought into memory, but for one event at most.
        Whatever was committed before the call is there. Positions already given out never change.
        """

    def ack_feed(self, acks: Sequence[FeedAck]) -> list[Acked]:
        """Moves readers forward, never back: an older position changes nothing.

        Nor does one that was never given out.
        """

    def find_published(self, tenant: str, event_id: str) -> tuple[bytes, int] | None:
        """Reads an event's fingerprint and seq."""

    def published_event(self, tenant: str, event_id: str) -> FeedEvent | None:
        """Reads one event by its id; its position is 0 while it has none."""

    def reader_positions(self, tenant: str | None = None) -> list[ReaderPosition]:
        """Tells where readers stand: those of a tenant, or all."""

    def forget_published(self, before_ms: int, limit: int) -> int:
        """Removes events from before a moment, the oldest of each feed first, and tells how many.

        Of one feed at most `limit` are looked at, and none is removed before those at lower positions are.
        The floor says how far this went.
        """

    def feed_secret(self) -> bytes:
        """The ledger's secret for authenticating cursors."""
