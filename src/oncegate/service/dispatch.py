"""What is checked before an event is published over HTTP: that it can be sent, and that there is room.

`feed/dispatch.py` puts what is published into the lanes of those who follow.
"""

from __future__ import annotations

from typing import Final

from oncegate.commit.lane_operations import CountWaiting
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.model.event_types import DEFAULT_TYPE
from oncegate.sender import request_builder
from oncegate.sender.sender import SenderOnCommits
from oncegate.service.messages import RequestDenied

ROOM_RETRY_SECONDS: Final = 30.0


async def check_room(sender: SenderOnCommits, tenant: str) -> None:
    """Refuses a publication while about a million events wait for an endpoint that follows."""
    for endpoint in await sender.endpoints.list_all():
        if endpoint.follows == tenant:
            await _check_room(sender, endpoint.name)


async def _check_room(sender: SenderOnCommits, name: str) -> None:
    """Counts what waits now and then, and estimates in between."""
    now = sender.clock.ticks_ms()
    if sender.backlog.must_count(name, now):
        waiting = await sender.commits.submit_async(CountWaiting(name))
        sender.backlog.counted(name, waiting, now)
    if not sender.backlog.takes_one(name):
        detail = "too many events wait for an endpoint that follows; this one was not published"
        raise RequestDenied(Problem(ProblemKind.TOO_MANY, detail, ROOM_RETRY_SECONDS))


def check_can_be_sent(event_id: object, key: object) -> None:
    """Raises BadOutgoing for an id or key that no endpoint could be sent, with any followers."""
    if isinstance(event_id, str) and isinstance(key, str):  # the feed refuses anything else
        request_builder.check_outgoing(
            request_builder.OutgoingRequest(
                event_id=event_id, key=key, seq=1, type=DEFAULT_TYPE, payload=b"0", occurred_at_ms=0
            )
        )
