"""What users get from a feed, as values: publications, events, pages, acknowledgements, readers."""

from __future__ import annotations

from typing import Any

import msgspec

from oncegate.model.trace import Context


class Publication(msgspec.Struct, frozen=True):
    """What became of an event: its seq, and whether it had been published before."""

    event_id: str
    key: str
    seq: int
    replay: bool


class Event(msgspec.Struct, frozen=True):
    """An event as readers get it; `cursor` acknowledges it and everything before it.

    The rest is the context that it was published with, where it had one.
    """

    id: str
    key: str
    seq: int
    published_at: str
    data: Any
    cursor: str
    correlation_id: str | msgspec.UnsetType = msgspec.UNSET
    traceparent: str | msgspec.UnsetType = msgspec.UNSET
    tracestate: str | msgspec.UnsetType = msgspec.UNSET
    planner_id: str | msgspec.UnsetType = msgspec.UNSET
    type: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def context(self) -> Context | None:
        """The trace that it belongs to, for the gate that admits it next."""
        given = (self.correlation_id, self.traceparent, self.tracestate, self.planner_id)
        correlation, parent, state, planner = (one or None for one in given)
        if correlation is parent is planner is None:
            return None
        return Context(None, correlation, parent, state, planner_id=planner)


class Page(msgspec.Struct, frozen=True):
    """Events in order. `next_cursor` is where to go on from, also if there are none now."""

    events: tuple[Event, ...]
    next_cursor: str
    has_more: bool


class Ack(msgspec.Struct, frozen=True):
    """Where a reader stands now; `replay` says that it stood there, or further, before."""

    cursor: str
    replay: bool


class Reader(msgspec.Struct, frozen=True):
    """How far a reader is, and how far behind."""

    name: str
    cursor: str
    acked_at: str
    behind: int
    oldest_at: str | None
