"""The order of a lane: may this seq be applied now? Pure, with a small memory of positions."""

from __future__ import annotations

from enum import Enum
from hashlib import sha256
from typing import Final

from msgspec import Struct

from oncegate.receiver.incoming import LanePosition

REMEMBERED_MAX: Final = 10_000


class Gap(Struct, frozen=True):
    """Seqs of a key that will not come: the sender has given them up and gone on."""

    key: str
    first: int
    last: int


class Turn(Enum):
    """What an event of a lane may do."""

    NOW = "now"
    TOO_EARLY = "too early"
    BEHIND = "behind"


def turn_of(place: LanePosition, position: int) -> Turn:
    """Judges a seq by how far its lane has come.

    Its turn has come when everything before it was applied, or was given up by the sender: `previous` is
    the last one before it that the sender did not give up.
    """
    if place.seq <= position:
        return Turn.BEHIND
    return Turn.NOW if place.previous <= position else Turn.TOO_EARLY


def gap_of(place: LanePosition, position: int) -> Gap | None:
    """What lies between an event whose turn has come and how far its lane has come."""
    return Gap(place.key, position + 1, place.seq - 1) if place.seq - position > 1 else None


def lane_id(surface: str, sender: str, key: str) -> bytes:
    """The name of a lane in the ledger; lengths keep its parts apart."""
    parts = [text.encode() for text in (surface, sender, key)]
    return sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()[:24]


class LanePositions:
    """Lower bounds of positions, of the lanes used last: a position never goes back."""

    def __init__(self, lanes_max: int = REMEMBERED_MAX) -> None:
        self._lanes: dict[bytes, int] = {}
        self._lanes_max = lanes_max

    def at_least(self, lane: bytes) -> int:
        """The furthest that the lane is known to have come."""
        return self._lanes.get(lane, 0)

    def note(self, lane: bytes, seq: int) -> None:
        """Keeps a position; the lane that was not used for longest makes room."""
        known = self._lanes.pop(lane, 0)
        self._lanes[lane] = max(known, seq)
        if len(self._lanes) > self._lanes_max:
            del self._lanes[next(iter(self._lanes))]
