"""From a message to an event: strict JSON, the context of its journey, and its lane.

Must never guess: bytes that cannot be read are poison, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncegate.errors import InputRefused, MalformedRequest
from oncegate.model.strictjson import read_json
from oncegate.model.surface import PAYLOAD_BYTES_MAX
from oncegate.model.template import KeyTemplate
from oncegate.model.trace import Context, context_of
from oncegate.sources.contract import Delivery
from oncegate.sources.held import HeldDelivery

Decode = Callable[[Delivery], Any]


def read_delivery(
    delivery: Delivery, decode: Decode | None, order_by: KeyTemplate | None, now_ms: int
) -> HeldDelivery:
    """Reads a message; one that cannot be read has `poison`."""
    held = HeldDelivery(delivery, received_ms=now_ms, extended_ms=now_ms, lane=delivery.lane)
    if delivery.headers:
        held.context = _context(delivery)
    try:
        held.event = _json(delivery) if decode is None else decode(delivery)
    except MalformedRequest as refused:
        held.poison = str(refused)
    except Exception as error:  # noqa: BLE001  a user's decoder may raise anything: the bytes are kept
        held.poison = f"{type(error).__name__}: {error}"
    if held.poison is None and order_by is not None:
        held.lane = _lane(order_by, held, delivery.lane)
    return held


def _json(delivery: Delivery) -> Any:
    if len(delivery.body) > PAYLOAD_BYTES_MAX:
        raise MalformedRequest(f"the message is {len(delivery.body)} bytes, more than {PAYLOAD_BYTES_MAX}")
    return read_json(delivery.body)


def _lane(order_by: KeyTemplate, held: HeldDelivery, otherwise: str | None) -> str | None:
    try:
        return "\0".join(order_by.derive(held.event).parts)
    except InputRefused:
        return otherwise  # the key template or the handler decides about it


def _context(delivery: Delivery) -> Context | None:
    headers = {name.lower(): value for name, value in delivery.headers.items()}
    return context_of(headers.get)
