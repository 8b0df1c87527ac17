"""Positions: how far each ordered lane of events that come in has been applied.

A position moves in the transaction that settles its event: `move_of` is a business write like any other,
handed over with the outcome. It only ever grows, so that a late or repeated move changes nothing. Every
store that takes business writes has the table `oncegate_position`, and understands this statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from oncegate.store.claims import Statement

_MOVE: Final = (
    "INSERT INTO oncegate_position (lane, seq, missed, at) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (lane) DO UPDATE SET seq = excluded.seq, at = excluded.at,"
    " missed = oncegate_position.missed + excluded.seq - oncegate_position.seq - 1"
    " WHERE excluded.seq > oncegate_position.seq"
)


def move_of(lane: bytes, seq: int, at_ms: int) -> Statement:
    """The write that moves a lane to `seq`; what lies between counts as missed."""
    return _MOVE, (lane, seq, seq - 1, at_ms)


class Positions(Protocol):
    """How far lanes have come."""

    def positions(self, lanes: Sequence[bytes]) -> list[int]:
        """The seq that each lane has come to; 0 where nothing was applied yet."""
