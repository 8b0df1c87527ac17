"""One delivery as an HTTP request: its headers and body. Pure; nothing is sent here.

The same event gives the same id, `Idempotency-Key`, key and seq on every attempt and every replay; only
the time, the signature and a replay's nonce differ.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from oncegate.clock import from_wall_ms
from oncegate.errors import BadOutgoing, MalformedRequest
from oncegate.model.surface import CARRIED_BYTES_MAX
from oncegate.model.timestamps import format_timestamp
from oncegate.signatures.keys import SigningKey
from oncegate.signatures.signing import sign
from oncegate.signatures.standard import check_message_id

PAYLOAD_BYTES_MAX: Final = CARRIED_BYTES_MAX  # so that a receiver with oncegate's own limit can take it
KEY_LENGTH_MAX: Final = 255
TYPE_LENGTH_MAX: Final = 120
SEQ_MAX: Final = 2**63 - 1
SEQ_DIGITS: Final = 19  # as many as SEQ_MAX has, so that text order is number order
USER_AGENT: Final = "oncegate"

_encode: Final = msgspec.json.Encoder().encode
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_VISIBLE: Final = re.compile(r"[ -~]{1,512}", re.ASCII)
_PLAIN: Final = frozenset(range(0x21, 0x7F)) - {ord("%")}
_ALL_PLAIN: Final = re.compile(r"[!-$&-~]*", re.ASCII)


class BodyFormat(Enum):
    """How the payload is put into the body."""

    STANDARD = "standard"  # {"type", "timestamp", "data"}, as Standard Webhooks has it, with key and seq
    CLOUDEVENTS = "cloudevents"  # a CloudEvent in structured mode
    RAW = "raw"  # the payload and nothing else


class OutgoingRequest(Struct, frozen=True, kw_only=True, gc=False):
    """An event on its way out.

    `payload` is JSON. `previous_seq` is the last seq of the key before this one that was not given up; it
    tells the receiver that what lies between will not come.
    """

    event_id: str
    key: str
    seq: int
    type: str
    payload: bytes
    occurred_at_ms: int
    previous_seq: int | None = None
    source: str = "oncegate"
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    planner_id: str | None = None


class Request(Struct, frozen=True, gc=False):
    """What is sent: headers in lower case, and the body."""

    headers: tuple[tuple[str, str], ...]
    body: bytes


def check_outgoing(event: OutgoingRequest) -> OutgoingRequest:
    """Returns an event that can be sent, or raises BadOutgoing with the reason."""
    try:
        check_message_id(event.event_id, "the event's id")
    except MalformedRequest as refused:
        raise BadOutgoing(str(refused)) from None
    _check_key(event.key)
    if not 1 <= event.seq <= SEQ_MAX:
        raise BadOutgoing("seq counts from 1")
    if event.previous_seq is not None and not 0 <= event.previous_seq < event.seq:
        raise BadOutgoing("previous_seq is not before seq")
    if not 0 < len(event.type) <= TYPE_LENGTH_MAX or not event.type.isprintable():
        raise BadOutgoing(f"the type is not 1 to {TYPE_LENGTH_MAX} printable characters")
    if len(event.payload) > PAYLOAD_BYTES_MAX:
        raise BadOutgoing(f"the payload is {len(event.payload)} bytes, more than {PAYLOAD_BYTES_MAX}")
    _check_context(event)
    return event


def _check_key(key: str) -> None:
    if not 0 < len(key) <= KEY_LENGTH_MAX:
        raise BadOutgoing(f"the key is not 1 to {KEY_LENGTH_MAX} characters long")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in key):
        raise BadOutgoing("the key has a control character")


def _check_context(event: OutgoingRequest) -> None:
    if event.traceparent is not None and _TRACEPARENT.fullmatch(event.traceparent) is None:
        raise BadOutgoing("traceparent is not a W3C trace context")
    for name, value in (
        ("source", event.source),
        ("correlation_id", event.correlation_id),
        ("planner_id", event.planner_id),
        ("tracestate", event.tracestate),
    ):
        if value is not None and (_VISIBLE.fullmatch(value) is None or value != value.strip()):
            raise BadOutgoing(f"{name} is not 1 to 512 printable ASCII characters")


def build_request(
    event: OutgoingRequest,
    keys: Sequence[SigningKey],
    now_s: int,
    *,
    body_format: BodyFormat = BodyFormat.STANDARD,
    own_headers: Sequence[tuple[str, str]] = (),
    replay_nonce: str | None = None,
) -> Request:
    """The request for one attempt at delivering an event that was checked when it was taken."""
    content_type, body = body_of(event, body_format)
    headers = (
        ("content-type", content_type),
        ("user-agent", USER_AGENT),
        *own_headers,
        ("idempotency-key", quoted(event.event_id)),
        ("x-key", escaped(event.key)),
        ("x-seq", str(event.seq)),
        ("x-previous-seq", str(previous_seq_of(event))),
        *_context(event),
        *(() if replay_nonce is None else (("x-replay", replay_nonce),)),
        *sign(keys, event.event_id, now_s, body),
    )
    return Request(headers, body)


def _context(event: OutgoingRequest) -> Sequence[tuple[str, str]]:
    if event.correlation_id is event.traceparent is event.tracestate is event.planner_id is None:
        return ()
    optional = (
        ("x-correlation-id", event.correlation_id),
        ("x-planner-id", event.planner_id),
        ("traceparent", event.traceparent),
        ("tracestate", event.tracestate),
    )
    return [(name, value) for name, value in optional if value is not None]


def previous_seq_of(event: OutgoingRequest) -> int:
    """The last seq of the key before this one that was not given up."""
    return event.seq - 1 if event.previous_seq is None else event.previous_seq


def quoted(text: str) -> str:
    """A structured-field string (RFC 9651), as the IETF draft for `Idempotency-Key` asks."""
    escaped_text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped_text}"'


@lru_cache(maxsize=4096)  # a key's events often come close together
def escaped(key: str) -> str:
    """A key as a header: visible ASCII as it is, everything else and `%` as UTF-8 %-escapes."""
    if _ALL_PLAIN.fullmatch(key):
        return key
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in key.encode())


def body_of(event: OutgoingRequest, body_format: BodyFormat) -> tuple[str, bytes]:
    """The content type and the body."""
    if body_format is BodyFormat.STANDARD:
        return "application/json", _standard(event)
    if body_format is BodyFormat.CLOUDEVENTS:
        return "application/cloudevents+json; charset=utf-8", _cloudevents(event)
    return "application/json", event.payload


class _Standard(Struct, frozen=True, gc=False):
    """Key and seq are in the body too because the signature covers the body, and no header but the id's."""

    type: str
    timestamp: str
    key: str
    seq: int
    previous_seq: int
    data: Raw


def _standard(event: OutgoingRequest) -> bytes:
    data = Raw(event.payload)
    return _encode(_Standard(event.type, _time(event), event.key, event.seq, previous_seq_of(event), data))


def _cloudevents(event: OutgoingRequest) -> bytes:
    document: dict[str, Any] = {
        "specversion": "1.0",
        "id": event.event_id,
        "source": event.source,
        "type": event.type,
        "time": _time(event),
        "datacontenttype": "application/json",
        "partitionkey": event.key,
        "sequence": f"{event.seq:0{SEQ_DIGITS}d}",
        "previoussequence": f"{previous_seq_of(event):0{SEQ_DIGITS}d}",
    }
    for name in ("traceparent", "tracestate"):
        if (value := getattr(event, name)) is not None:
            document[name] = value
    document["data"] = Raw(event.payload)
    return _encode(document)


def _time(event: OutgoingRequest) -> str:
    second, millisecond = divmod(event.occurred_at_ms, 1000)
    return f"{_second(second)}.{millisecond:03d}Z"


@lru_cache(maxsize=64)  # events of one second have its beginning in common
def _second(seconds: int) -> str:
    return format_timestamp(from_wall_ms(seconds * 1000)).removesuffix(".000Z")
