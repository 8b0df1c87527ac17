"""Messages that are no events: kept in quarantine with their raw bytes, for a person.

A source calls this for what it cannot read as JSON, and for what is too large for an event. The same bytes
are the same entry however often they come. Must never run anything.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from oncegate.commit.operations import Reserve
from oncegate.errors import EventNotStorable
from oncegate.gate.driver.requests import Flow
from oncegate.gate.flows.admit import wanted_again
from oncegate.gate.flows.conflicts import return_claim
from oncegate.gate.flows.parking import room_flow
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.surface import Surface
from oncegate.model.canonical import fingerprint_of
from oncegate.model.keys import derive_quarantine_key
from oncegate.model.surface import LABEL_LENGTH_MAX, Arrival, Reason
from oncegate.store import Reserved

RAW_BYTES_MAX: Final = 4 * 1024 * 1024
RAW: Final = "oncegate_raw"  # the one field of the event that stands for a message


class RawMessage(msgspec.Struct, frozen=True):
    """A message as it came. `origin` says from where, `reason` why it is no event."""

    body: bytes
    reason: str
    origin: str = ""
    headers: Mapping[str, str] = {}
    tenant: str = ""


def unreadable_flow(gate: GateContext, surface: Surface, raw: RawMessage) -> Flow[Reserved]:
    """Keeps a message in quarantine; raises EventNotStorable where it is too large for that too."""
    wanted = wanted_again(gate, surface, _arrival(surface, raw))
    yield from room_flow(gate, surface, wanted)
    reserved: Reserved = yield Reserve(wanted)
    yield from return_claim(gate, reserved)
    return reserved


def _arrival(surface: Surface, raw: RawMessage) -> Arrival:
    if len(raw.body) > RAW_BYTES_MAX:
        raise EventNotStorable(f"the message is {len(raw.body)} bytes, more than {RAW_BYTES_MAX}")
    content = fingerprint_of(raw.body)
    key = derive_quarantine_key(raw.tenant, surface.name, content)
    told: dict[str, Any] = {
        "base64": b64encode(raw.body).decode(),
        "bytes": len(raw.body),
        "headers": dict(raw.headers),
        "origin": raw.origin,
    }
    if (text := _as_text(raw.body)) is not None:
        told["text"] = text
    body = msgspec.json.encode({RAW: told}, order="sorted")
    label = f"unreadable message: {raw.reason}"[:LABEL_LENGTH_MAX]
    reason = f"{Reason.KEY_INPUT.value}: not_an_event: {raw.reason}"
    return Arrival(key, raw.tenant, label, content, body, reason)


def _as_text(body: bytes) -> str | None:
    """The beginning of a message as people read it; None for bytes that are no text."""
    try:
        return body[:2000].decode("utf-8", "strict" if len(body) <= 2000 else "ignore")
    except UnicodeDecodeError:
        return None
