"""Dispatch: an event that is published is put, in the same transaction, into the lane of every follower.

A *follower* is an endpoint that was added to get the events of one tenant, all or those of some types.
Push and poll then tell the same: the id and the key are the event's own, and the seq is the feed's, which
travels with the delivery. Followers are read after the keys of the batch are locked, so that of two events
of one key the later never misses an endpoint which the earlier went to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct, json
from msgspec.structs import replace

from oncegate.model.event_types import DEFAULT_TYPE, takes
from oncegate.model.trace import Context, decode_context, encode_context
from oncegate.store import Document, Outgoing
from oncegate.store.feed import EventToPublish
from oncegate.store.lanes import NO_BACKLOG_MAX
from oncegate.store.registry import ENDPOINT_KIND

KIND = ENDPOINT_KIND


class Follower(Struct, frozen=True):
    """What dispatch needs of an endpoint; the rest of its document is the sender's."""

    name: str
    follows: str | None = None
    types: tuple[str, ...] = ()


@lru_cache(maxsize=4_096)
def _read(body: bytes) -> Follower:
    return json.decode(body, type=Follower)


def deliveries(
    documents: Iterable[Document], fresh: Sequence[tuple[EventToPublish, int]]
) -> list[Outgoing]:
    """New events, with their seqs, for all who follow: those of one key in the order of their seq."""
    followers: dict[str, list[Follower]] = {}
    for document in documents:
        found = _read(document.body)
        if found.follows is not None:
            followers.setdefault(found.follows, []).append(found)
    if not followers:
        return []
    in_order = sorted(fresh, key=lambda one: one[1])
    return [
        event
        for item, seq in in_order
        for follower in followers.get(item.tenant, ())
        if (event := _outgoing(follower, item, seq)) is not None
    ]


# Without a limit: a lane that is full would leave a gap. The service limits before anything is published.
def _outgoing(follower: Follower, item: EventToPublish, seq: int) -> Outgoing | None:
    context = decode_context(item.context) if item.context else Context()
    event_type = context.type or DEFAULT_TYPE
    if not takes(follower.types, event_type):
        return None
    # Between two events of a key that are of these types there may be others, which do not come.
    previous = 0 if follower.types else None
    return Outgoing(
        follower.name, item.tenant, item.key, item.event_id, event_type, item.body, item.fingerprint,
        item.at_ms, encode_context(replace(context, seq=seq, previous_seq=previous)), NO_BACKLOG_MAX,
    )  # fmt: skip
