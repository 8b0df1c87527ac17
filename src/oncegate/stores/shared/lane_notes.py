"""What the log says about lanes, in the same words for every store."""

from __future__ import annotations

from typing import Final

from oncegate.clock import utc_text
from oncegate.store import DestinationState, HeadOrder, LogKind, ReplayWanted, Steering, replay_name
from oncegate.store.lane_desk import REPLAY_SAMPLE

STEERED: Final = {
    DestinationState.ACTIVE: LogKind.DESTINATION_RESUMED,
    DestinationState.PAUSED: LogKind.DESTINATION_PAUSED,
    DestinationState.DISABLED: LogKind.DESTINATION_DISABLED,
}


def order_note(order: HeadOrder) -> str:
    """About an order for a head."""
    return f"seq {order.seq}: {order.reason}"


def skipped_error(order: HeadOrder) -> str:
    """What a dead letter says that was none before it was skipped."""
    return f"skipped by {order.actor}: {order.reason}"


def steering_note(wanted: Steering) -> str:
    """About a destination's state."""
    return f"{wanted.destination}: {wanted.reason}"


def replay_note(wanted: ReplayWanted, deliveries: int, lanes: int) -> str:
    """About the beginning of a replay."""
    what = "dead letters" if wanted.only_dead else "deliveries"
    counts = f"{deliveries} {what} of {lanes} lanes of {wanted.destination}{_narrowed(wanted)}"
    return f"{replay_name(wanted.nonce)}: {counts}: {wanted.reason}"


def _narrowed(wanted: ReplayWanted) -> str:
    words = "" if wanted.type is None else f" of type {wanted.type}"
    words += "" if wanted.since_ms is None else f" since {utc_text(wanted.since_ms)}"
    return words + ("" if wanted.until_ms is None else f" before {utc_text(wanted.until_ms)}")


def replay_sample(lanes: list[int], counts: list[int]) -> tuple[tuple[int, int], ...]:
    """The first lanes of a replay, each with how many deliveries."""
    found = [(lane, count) for lane, count in zip(lanes, counts, strict=True) if count > 0]
    return tuple(found[:REPLAY_SAMPLE])


def cancel_note(nonce: int, deliveries: int, reason: str) -> str:
    """About the end of a replay before it was done."""
    return f"{replay_name(nonce)}: {deliveries} deliveries taken back: {reason}"
