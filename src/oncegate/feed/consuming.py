"""The reading half: take events in order, deal with each durably, and only then acknowledge it.

A crash anywhere repeats events and never skips one; what deals with them must stand repeats, which
`through_gate` sees to. Must never acknowledge an event before `apply` has returned for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from oncegate.errors import Busy
from oncegate.feed.values import Ack, Event, Page
from oncegate.gate.admission import Verdict
from oncegate.gate.facade import GateOnStore

Apply = Callable[[Event], Awaitable[object]]


class Source(Protocol):
    """Where events come from: `Feed.reader(…)` in the same process, or a service over HTTP."""

    async def read(self, since: str | None, limit: int, wait_seconds: float) -> Page:
        """Reads the events after a cursor; None means after the last acknowledged."""

    async def ack(self, cursor: str) -> Ack:
        """Acknowledges everything up to a cursor."""


class Consumed(msgspec.Struct, frozen=True):
    """What one round did: how many events, and the cursor acknowledged last, if any."""

    events: int
    cursor: str | None


async def consume(
    source: Source,
    apply: Apply,
    *,
    limit: int = 100,
    wait_seconds: float = 20.0,
    go_on: Callable[[], bool] = lambda: True,
) -> Consumed:
    """Applies events in order until `go_on` says no; an error of `apply` ends it.

    What was dealt with before the error is acknowledged, the event itself is not: the next call begins
    with it.
    """
    total, cursor = 0, None
    while go_on():
        page = await source.read(cursor, limit, wait_seconds)
        done = await _deal_with(source, page, apply)
        total, cursor = total + done.events, done.cursor or page.next_cursor
    return Consumed(total, cursor)


async def _deal_with(source: Source, page: Page, apply: Apply) -> Consumed:
    done = 0
    try:
        for event in page.events:
            await apply(event)
            done += 1
    finally:
        # Also on the way out of an error: what is done is done, and need not come again.
        if done:
            await source.ack(page.events[done - 1].cursor)
    return Consumed(done, page.events[done - 1].cursor if done else None)


def through_gate(gate: GateOnStore, surface: str, *, tenant: str | None = None) -> Apply:
    """Applies events by admitting them at a surface: each runs once, however often it comes.

    An event in quarantine or before a person is on record and does not stop those after it; one whose key
    is busy elsewhere does.
    """

    async def apply(event: Event) -> None:
        body = {"id": event.id, "key": event.key, "seq": event.seq, "data": event.data}
        admission = await gate.admit(surface, body, tenant=tenant, context=event.context, actor="feed")
        if admission.verdict is Verdict.BUSY:
            raise Busy(f"event {event.id} is in flight elsewhere", admission.retry_after_seconds)

    return apply
