"""One event as a Kafka record. Pure.

The same event gives the same record on every attempt; a replay only adds its nonce. Id, key and seq are
those that webhooks and readers of the feed get.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from oncegate.errors import BadOutgoing
from oncegate.sender.request_builder import BodyFormat, OutgoingRequest, body_of, previous_seq_of


class Record(Struct, frozen=True):
    """What is produced."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def build_record(
    event: OutgoingRequest,
    *,
    key_field: str | None = None,
    body_format: BodyFormat = BodyFormat.STANDARD,
    own_headers: Sequence[tuple[str, str]] = (),
    replay_nonce: str | None = None,
) -> Record:
    """The record of an event; raises BadOutgoing where the payload lacks the field of the record key."""
    content_type, value = body_of(event, body_format)
    named = {
        "content-type": content_type,
        "id": event.event_id,
        "key": event.key,
        "seq": str(event.seq),
        "previous-seq": str(previous_seq_of(event)),
        "type": event.type,
        "correlation-id": event.correlation_id,
        "planner-id": event.planner_id,
        "traceparent": event.traceparent,
        "tracestate": event.tracestate,
        "replay": replay_nonce,
    }
    headers = [*own_headers, *((name, text) for name, text in named.items() if text is not None)]
    encoded = tuple((name, text.encode()) for name, text in headers)
    return Record(record_key(event.key, event.payload, key_field).encode(), value, encoded)


def record_key(key: str, payload: bytes, field: str | None) -> str:
    """The record key: the declared field of the payload, else the event's key."""
    if field is None:
        return key
    value: Any = msgspec.json.decode(payload)
    for name in field.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value:
        return value
    raise BadOutgoing(f"the payload has no text or whole number in {field!r}, the field of the record key")
