"""Which shard a key belongs to, and how the number of an entry names it.

The first ten bits of a key, which is uniform, name one of 1,024 virtual shards. Each shard has a run of
them. Must never change for a ledger that has entries: a key that is looked for elsewhere is a new key.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

VIRTUAL_BITS: Final = 10
SHARDS_MAX: Final = 64
ID_BITS: Final = 48  # numbers of one ledger are below 2^48
_ID_MASK: Final = (1 << ID_BITS) - 1


def shard_of(key: bytes, count: int) -> int:
    """The shard of a key."""
    virtual = int.from_bytes(key[:2]) >> (16 - VIRTUAL_BITS)
    return virtual * count >> VIRTUAL_BITS


def outer_id(shard: int, number: int) -> int:
    """The number of an entry, with its shard in it."""
    return shard << ID_BITS | number


def inner_id(number: int) -> tuple[int, int]:
    """The shard of an entry, and its number there."""
    return number >> ID_BITS, number & _ID_MASK


class Stamp(Struct, frozen=True):
    """What a database says of itself: which set of shards it belongs to, and as what."""

    set_id: str
    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.set_id}/{self.index}/{self.count}"

    @classmethod
    def read(cls, text: str) -> Stamp:
        """A stamp as it was written."""
        set_id, index, count = text.split("/")
        return cls(set_id, int(index), int(count))
