"""Traces: what belongs to one journey, from an event that came in to everything that it led to.

A trace is named by 32 hex digits that every hop works out from what it has: a correlation id, else a W3C
`traceparent`, else the key of the entry where the journey began. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

SOURCE: Final = "oncegate"
TEXT_LENGTH_MAX: Final = 512
CARRIERS: Final = frozenset(
    {b"traceparent", b"x-correlation-id", b"x-planner-id"}
)  # without them there is no context

_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_VISIBLE: Final = re.compile(r"[!-~]([ -~]{0,510}[!-~])?", re.ASCII)


class Context(Struct, frozen=True, omit_defaults=True):
    """What travels with an event through every hop. `cause` is the key of the entry that led to it.

    `trace_id` stands first, because the ledgers' index on emitted events reads it from there. `seq` is set
    where the event was published: its seq in the feed, which is the one that receivers see. `planner_id` is
    who planned the work that the event is about. `type` is that of a published event.
    """

    trace_id: str | None = None
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    source: str = SOURCE
    cause: str | None = None
    seq: int | None = None
    planner_id: str | None = None
    type: str | None = None


decode_context = msgspec.json.Decoder(Context).decode


def encode_context(context: Context) -> bytes:
    """The context as it is kept beside an event or an entry."""
    return msgspec.json.encode(context)


def trace_named(correlation_id: str) -> str:
    """The trace that a correlation id names; one that is a trace's name already stands for itself."""
    if _TRACE_ID.fullmatch(correlation_id) is not None:
        return correlation_id
    return sha256(b"oncegate-trace-1\0" + correlation_id.encode()).hexdigest()[:32]


def named(context: Context) -> Context:
    """The context with the name of its trace, where it can be worked out."""
    if context.trace_id is not None:
        return context
    if context.correlation_id is not None:
        return replace(context, trace_id=trace_named(context.correlation_id))
    found = None if context.traceparent is None else _TRACEPARENT.fullmatch(context.traceparent)
    return context if found is None else replace(context, trace_id=found[1])


def inherited(context: Context | None, key: bytes) -> Context:
    """The context of what an entry leads to. Without one of its own, the journey begins at its key."""
    found = named(context or Context())
    trace_id = found.trace_id or trace_of_key(key)
    return replace(
        found, trace_id=trace_id, correlation_id=found.correlation_id or trace_id, cause=key.hex()
    )


def trace_of_key(key: bytes) -> str:
    """The trace that begins at an entry."""
    return key[:16].hex()


def context_of(find: Callable[[str], str | None]) -> Context | None:
    """The context that a request's headers carry; None without any that can be used.

    What is malformed is left out: a stranger's tracing must never be why an event is refused.
    """
    traceparent, correlation = find("traceparent"), find("x-correlation-id")
    planner = find("x-planner-id")
    if traceparent is correlation is planner is None:
        return None  # as for most requests
    if traceparent is None or _TRACEPARENT.fullmatch(traceparent) is None:
        traceparent = None
    context = Context(
        correlation_id=usable(correlation),
        traceparent=traceparent,
        tracestate=usable(find("tracestate")) if traceparent is not None else None,
        planner_id=usable(planner),
    )
    return None if context == Context() else context


def headers_of(context: Context) -> dict[str, str]:
    """The context as headers of a request to the next hop; what cannot be one is left out."""
    found = {
        "X-Correlation-Id": context.correlation_id,
        "X-Planner-Id": context.planner_id,
        "traceparent": context.traceparent,
        "tracestate": None if context.traceparent is None else context.tracestate,
    }
    return {name: text for name, text in found.items() if text is not None and usable(text) is not None}


def usable(value: Any) -> str | None:
    """A correlation id as it can travel in a header; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and _VISIBLE.fullmatch(value) is not None:
        return value
    return None
