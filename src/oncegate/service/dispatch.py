"""Dispatch: an event that is published is put, in the same transaction, into the lane of every follower.

A *follower* is an endpoint that was added to get the events of one tenant. Push and poll then tell the
same: the id and the key are the event's own, and the seq is the feed's, which travels with the delivery.
Followers are read after the keys of the batch are locked, so that of two events of one key the later never
misses an endpoint which the earlier went to.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from oncegate.commit.lane_operations import CountWaiting
from oncegate.feed.operations import Publish
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.model.trace import Context, decode_context
from oncegate.sender import endpoint_registry, request_builder
from oncegate.sender.endpoints import decode_endpoint
from oncegate.sender.sender import SenderOnCommits
from oncegate.service.messages import RequestDenied
from oncegate.store import Outgoing, Session
from oncegate.store.feed import EventToPublish, Published, Publishing
from oncegate.store.lanes import NO_BACKLOG_MAX

EVENT_TYPE: Final = "event"
ROOM_RETRY_SECONDS: Final = 30.0

_encode: Final = msgspec.json.Encoder().encode


class Dispatch(Publish):
    """Publishes an event and enqueues it for its followers. Read back as the publication."""

    @classmethod
    def run(cls, session: Session, operations: Sequence[Publish]) -> Sequence[Published]:
        """Publishes many, then enqueues what is new."""
        wanted = [operation.request for operation in operations]
        answers = session.publish(wanted)
        fresh = [
            (item, answer.seq)
            for item, answer in zip(wanted, answers, strict=True)
            if answer.publishing is Publishing.NEW
        ]
        if fresh and (events := _deliveries(session, fresh)):
            session.enqueue(events)
        return answers


def _deliveries(session: Session, fresh: Sequence[tuple[EventToPublish, int]]) -> list[Outgoing]:
    """Events for all followers, those of one key in the order of their seq."""
    followers: dict[str, list[str]] = {}
    for document in session.documents(endpoint_registry.KIND):
        tenant = _followed(document.body)
        if tenant is not None:
            followers.setdefault(tenant, []).append(document.name)
    in_order = sorted(fresh, key=lambda one: one[1])
    return [_outgoing(name, item, seq) for item, seq in in_order for name in followers.get(item.tenant, ())]


@lru_cache(maxsize=4 * endpoint_registry.ENDPOINTS_MAX)
def _followed(body: bytes) -> str | None:
    return decode_endpoint(body).follows


# Without a limit: a lane that is full would leave a gap. `check_room` limits before anything is published.
def _outgoing(endpoint: str, item: EventToPublish, seq: int) -> Outgoing:
    return Outgoing(
        endpoint, item.tenant, item.key, item.event_id, EVENT_TYPE, item.body, item.fingerprint,
        item.at_ms, _context(item, seq), NO_BACKLOG_MAX,
    )  # fmt: skip


def _context(item: EventToPublish, seq: int) -> bytes:
    """What the event was published with, and the feed's seq."""
    return _encode(replace(decode_context(item.context), seq=seq) if item.context else Context(seq=seq))


async def check_room(sender: SenderOnCommits, tenant: str) -> None:
    """Refuses a publication while about a million events wait for an endpoint that follows."""
    for endpoint in await sender.endpoints.list_all():
        if endpoint.follows == tenant:
            await _check_room(sender, endpoint.name)


async def _check_room(sender: SenderOnCommits, name: str) -> None:
    """Counts what waits now and then, and estimates in between."""
    now = sender.clock.ticks_ms()
    if sender.backlog.must_count(name, now):
        waiting = await sender.commits.perform_async(CountWaiting(name))
        sender.backlog.counted(name, waiting, now)
    if not sender.backlog.takes_one(name):
        detail = "too many events wait for an endpoint that follows; this one was not published"
        raise RequestDenied(Problem(ProblemKind.TOO_MANY, detail, ROOM_RETRY_SECONDS))


def check_can_be_sent(event_id: object, key: object) -> None:
    """Raises BadOutgoing for an id or key that no endpoint could be sent, whoever follows now."""
    if isinstance(event_id, str) and isinstance(key, str):  # the feed refuses anything else
        request_builder.check_outgoing(
            request_builder.OutgoingRequest(
                event_id=event_id, key=key, seq=1, type=EVENT_TYPE, payload=b"0", occurred_at_ms=0
            )
        )
