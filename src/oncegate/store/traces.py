"""Traces: entries that came with a context, and emitted events, found by the journey they belong to.

An entry's link is written before its handler runs, and only if its event came with something to link;
events in lanes carry their trace in their context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class TraceLink(Struct, frozen=True):
    """An entry's place in a journey: the trace's name, and the context as it came."""

    entry_id: int
    trace_id: str
    context: bytes


class TracedDelivery(Struct, frozen=True):
    """An emitted event with what came of it. `head_seq` is where its lane is now."""

    lane_id: int
    seq: int
    destination: str
    tenant: str
    key: str
    event_id: str
    type: str
    created_at_ms: int
    context: bytes
    head_seq: int
    acknowledged_at_ms: int | None
    attempts: int
    note: str | None
    is_dead: bool


class TracedPublication(Struct, frozen=True):
    """An event that was published to its tenant's feed."""

    tenant: str
    key: str
    seq: int
    event_id: str
    at_ms: int
    context: bytes


class Traces(Protocol):
    """Links between what happened.

    The sender of an event names its trace, so several tenants may use one name. What is found of a trace is
    one tenant's where one is named; otherwise the limit is shared fairly: each tenant's first, then each
    tenant's second, and so on. No tenant's events push another's out.
    """

    def link(self, links: Sequence[TraceLink]) -> None:
        """Keeps the place of entries; an entry that has one keeps the one it has."""

    def link_of(self, entry_id: int) -> TraceLink | None:
        """Finds an entry's place; None if its event came with nothing."""

    def linked(self, trace_id: str, limit: int, tenant: str | None = None) -> list[int]:
        """Numbers of the entries of a trace, in their order."""

    def traced(self, trace_id: str, limit: int, tenant: str | None = None) -> list[TracedDelivery]:
        """Emitted events of a trace, in order of their making."""

    def emitted_as(self, event_id: str, limit: int) -> list[TracedDelivery]:
        """Emitted events of this id, at whatever destination."""

    def published_on(self, trace_id: str, limit: int, tenant: str | None = None) -> list[TracedPublication]:
        """Published events of a trace, in order of their making."""

    def published_as(self, event_id: str, limit: int) -> list[TracedPublication]:
        """Published events of this id, in whichever tenant's feed."""
