"""Signed requests as a sender makes them, and a receiver that notes what it applies."""

from __future__ import annotations

from typing import Any

import msgspec

from oncegate import Gate
from oncegate.receiver import Answer, Receiver
from oncegate.sender.request_builder import BodyFormat, OutgoingRequest, Request, build_request
from oncegate.signatures import HmacSecret
from tests.support.gates import LEASE, Ledger

SECRET = HmacSecret(b"s" * 32)


class Inbox:
    """A receiver of orders and what it has applied, in order."""

    def __init__(self, ledger: Ledger, gate: Gate | None = None, **options: Any) -> None:
        self.ledger = ledger
        self.gate = gate or ledger.gate()
        self.applied: list[tuple[str, int]] = []
        self.trouble: BaseException | None = None
        self.receiver = Receiver(self.gate, "orders", secrets=[SECRET.reveal()], sender="acme", **options)

        @self.receiver.handler(lease=LEASE)
        def apply(event: Any, once: Any) -> int:
            if self.trouble is not None:
                raise self.trouble
            self.applied.append((event["key"], event["seq"]))
            return len(self.applied)

    def request(
        self, seq: int, key: str = "k", *, previous: int | None = None, event_id: str | None = None,
        body_format: BodyFormat = BodyFormat.STANDARD, payload: bytes = b"{}",
    ) -> Request:  # fmt: skip
        """A signed request for one event."""
        event = OutgoingRequest(
            event_id=event_id or f"{key}-{seq}",
            key=key,
            seq=seq,
            previous_seq=previous,
            type="order.updated",
            payload=payload,
            occurred_at_ms=1_000,
        )
        now_s = self.ledger.clock.wall_ms() // 1000
        return build_request(event, [SECRET], now_s, body_format=body_format)

    def send(self, seq: int, key: str = "k", **options: Any) -> int:
        """Sends one event and returns the status."""
        return self.receive(self.request(seq, key, **options)).status

    def receive(self, request: Request) -> Answer:
        """Hands a request to the receiver."""
        return self.receiver.receive_sync(request.headers, request.body)


def document(answer: Answer) -> Any:
    """An answer's body, read."""
    return msgspec.json.decode(answer.body)
