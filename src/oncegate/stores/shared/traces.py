"""Rows about traces as values, for both ledgers."""

from __future__ import annotations

from typing import Any

from oncegate.store import TracedDelivery, TracedPublication


def published_of(row: tuple[Any, ...]) -> TracedPublication:
    """A row as a value."""
    tenant, key, seq, event_id, at_ms, context = row
    return TracedPublication(tenant, key, seq, event_id, at_ms, bytes(context or b""))


def traced_of(row: tuple[Any, ...]) -> TracedDelivery:
    """A row as a value."""
    lane, seq, destination, tenant, key, event, kind, created, context, head, at, attempts, note, dead = row
    return TracedDelivery(
        lane, seq, destination, tenant, key, event, kind, created, bytes(context), head, at, attempts, note,
        bool(dead),
    )  # fmt: skip
