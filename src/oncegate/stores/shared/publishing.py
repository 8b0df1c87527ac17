"""What both ledgers decide alike about published events."""

from __future__ import annotations

from collections.abc import Sequence

from oncegate.store.feed import EventToPublish, Published, Publishing


def judged(item: EventToPublish, fingerprint: bytes, seq: int) -> Published:
    """The answer to an event whose id is known."""
    if fingerprint != item.fingerprint:
        return Published(Publishing.CONFLICT, 0)
    return Published(Publishing.KNOWN, seq)


def oldest_prefix(rows: Sequence[tuple[int, int]], before_ms: int) -> int | None:
    """How far events may be removed: up to the first that is from after the moment."""
    up_to = None
    for position, at_ms in rows:
        if at_ms >= before_ms:
            break
        up_to = position
    return up_to
