"""From what a program emits to an event that can stand in a lane: checked, encoded, with its context.

Pure but for the id of an event that was given none. The same event emitted twice gives the same bytes.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.errors import BadOutgoing, ConfigError, EventNotStorable
from oncegate.gate.runtime.tracing import inherited_context
from oncegate.model.canonical import canonical_json, fingerprint_of
from oncegate.model.limits import cannot_be_carried
from oncegate.model.surface import check_name
from oncegate.model.trace import Context, decode_context, encode_context, named
from oncegate.sender import request_builder
from oncegate.store import Delivery, Outgoing

_NO_CONTEXT: Final = Context()
_NOTHING: Final = (b"{}", b"")  # how it is kept


class Emission(Struct, frozen=True, kw_only=True):
    """An event as a program emits it."""

    endpoint: str
    key: str
    type: str
    payload: Any
    event_id: str | None = None
    tenant: str = ""
    context: Context | None = None


def new_event_id(clock: Clock) -> str:
    """A new id: the time first, so that ids sort about as they were made."""
    return f"evt_{clock.wall_ms():012x}{secrets.token_hex(10)}"


def outgoing_of(emission: Emission, clock: Clock, backlog_max: int) -> Outgoing:
    """The event as the store keeps it; raises BadOutgoing where it could never be sent."""
    _check_texts(emission)
    context = named(emission.context or inherited_context() or Context())
    payload = _payload(emission.payload)
    event = Outgoing(
        emission.endpoint,
        emission.tenant,
        emission.key,
        new_event_id(clock) if emission.event_id is None else emission.event_id,
        emission.type,
        payload,
        fingerprint_of(b"\0".join((emission.type.encode(), emission.key.encode(), payload))),
        clock.wall_ms(),
        encode_context(context),
        backlog_max,
    )
    request_builder.check_outgoing(_on_the_wire(event, context, seq=1))
    return event


def _check_texts(emission: Emission) -> None:
    """Whatever a program hands over as a name must be text that can be stored."""
    context = emission.context or Context()
    names = ("key", "type", "event_id", "tenant")
    given = [(name, getattr(emission, name)) for name in names]
    given += [(name, getattr(context, name)) for name in ("correlation_id", "planner_id", "tracestate")]
    for name, text in given:
        if text is None and name not in ("key", "type", "tenant"):
            continue
        if not isinstance(text, str):
            raise BadOutgoing(f"{name}= is of type {type(text).__name__}; give text")
        if not text and name != "tenant":
            raise BadOutgoing(f"{name}= is empty")
        if not _is_unicode(text):
            raise BadOutgoing(f"{name}= has a lone surrogate, which is not Unicode text")
    if emission.tenant:
        _check_tenant(emission.tenant)


def _check_tenant(tenant: str) -> None:
    try:
        check_name("tenant", tenant)
    except ConfigError as refused:
        raise BadOutgoing(str(refused)) from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _payload(payload: Any) -> bytes:
    try:
        body = canonical_json(payload)
    except EventNotStorable as refused:
        raise BadOutgoing(f"the payload cannot be sent: {refused}") from None
    if (why := cannot_be_carried(body)) is not None:
        raise BadOutgoing(f"the payload cannot be sent: it {why}")
    return body


def wire_event(delivery: Delivery) -> request_builder.OutgoingRequest:
    """A leased event as the request is made of it."""
    context = _NO_CONTEXT if delivery.context in _NOTHING else decode_context(delivery.context)
    seq, previous = _wire_seqs(delivery, context.seq)
    return _on_the_wire(delivery, context, seq, previous)


def _wire_seqs(delivery: Delivery, published: int | None) -> tuple[int, int | None]:
    """Seq and previous seq as receivers see them.

    A follower's lane has every event of its key since it began to follow, so that the feed's seq is always
    the same number ahead of the lane's. The first of a lane says that nothing comes before it.
    """
    if published is None:
        return delivery.seq, delivery.previous_seq
    if delivery.previous_seq:
        return published, delivery.previous_seq + published - delivery.seq
    is_first = delivery.previous_seq == 0 or (delivery.seq == 1 and published > 1)
    return published, 0 if is_first else None


def _on_the_wire(
    event: Outgoing | Delivery, context: Context, seq: int, previous_seq: int | None = None
) -> request_builder.OutgoingRequest:
    return request_builder.OutgoingRequest(
        event_id=event.event_id,
        key=event.key,
        seq=seq,
        type=event.type,
        payload=event.payload,
        occurred_at_ms=event.created_at_ms,
        previous_seq=previous_seq,
        source=context.source,
        correlation_id=context.correlation_id,
        traceparent=context.traceparent,
        tracestate=context.tracestate,
        planner_id=context.planner_id,
    )
