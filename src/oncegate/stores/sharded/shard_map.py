"""Which shard a key belongs to, and how the number of an entry names it.

The first twelve bits of a key, which is uniform, name one of 4,096 virtual shards. Rendezvous hashing gives
each of them a shard by its place in the list, so that a longer list takes as few as possible from each.
Must never change for a ledger that has entries: a key that is looked for elsewhere is a new key.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from oncegate.clock import SystemClock
from oncegate.errors import PartUnavailable

VIRTUAL_BITS: Final = 12
VIRTUALS: Final = 1 << VIRTUAL_BITS
SHARDS_MAX: Final = 64
ID_BITS: Final = 48  # numbers of one ledger are below 2^48
# How long a map is believed while keys are moved, at least, and in times of what reading it took. The
# databases refuse what is not theirs in any case.
RENEWED_MS: Final = 500
RENEWED_TIMES: Final = 20
_ID_MASK: Final = (1 << ID_BITS) - 1


def virtual_of(key: bytes) -> int:
    """The virtual shard of a key."""
    return int.from_bytes(key[:2]) >> (16 - VIRTUAL_BITS)


@cache
def rendezvous(count: int) -> tuple[int, ...]:
    """The shard of each virtual shard, in a list of so many: the one with the highest hash."""
    shards = [str(shard).encode() for shard in range(count)]

    def home(virtual: int) -> int:
        hashed = blake2b(virtual.to_bytes(2), digest_size=8)
        scores = []
        for shard in shards:
            one = hashed.copy()
            one.update(shard)
            scores.append(one.digest())
        return scores.index(max(scores))

    return tuple(map(home, range(VIRTUALS)))


def shard_of(key: bytes, count: int) -> int:
    """The shard of a key while nothing is moved."""
    return rendezvous(count)[virtual_of(key)]


def outer_id(shard: int, number: int) -> int:
    """The number of an entry, with its shard in it."""
    return shard << ID_BITS | number


def inner_id(number: int) -> tuple[int, int]:
    """The shard of an entry, and its number there."""
    return number >> ID_BITS, number & _ID_MASK


class Homes:
    """Where the virtual shards are, as this process knows it.

    `read` asks the shards; it gives None where nothing is moved. A map that is out of date does no harm: a
    database refuses keys that are not its own.
    """

    def __init__(self, count: int, read: Callable[[Homes], Sequence[int | None] | None]) -> None:
        self.count = count
        self.places: Sequence[int | None] = rendezvous(count)
        self.is_moving = False  # or may be: a database has refused a key
        self._read, self._clock, self._read_again_ms = read, SystemClock(), 0
        self._lock = threading.Lock()

    def of(self, key: bytes) -> int:
        """The shard of a key; raises PartUnavailable while it is on its way."""
        found = self.places[virtual_of(key)]
        if found is None:
            raise PartUnavailable(
                "the event's key is on its way to another shard, or this program has the list of shards"
                " from before `oncegate reshard`; nothing was run. Send it again"
            )
        return found

    def renew(self) -> None:
        """Reads the map again where it may be out of date; one thread does, the others go on meanwhile."""
        is_due = self.is_moving and self._clock.ticks_ms() >= self._read_again_ms
        if is_due and self._lock.acquire(blocking=False):
            try:
                self._renew()
            finally:
                self._lock.release()

    def read(self) -> None:
        """Reads the map."""
        with self._lock:
            self._renew()

    def _renew(self) -> None:
        began_ms = self._clock.ticks_ms()
        found = self._read(self)
        self.places, self.is_moving = found or rendezvous(self.count), found is not None
        now_ms = self._clock.ticks_ms()
        self._read_again_ms = now_ms + max(RENEWED_MS, RENEWED_TIMES * (now_ms - began_ms))


class Stamp(Struct, frozen=True):
    """What a database says of itself: which set of shards it belongs to, and as what.

    `to` is how many shards the set is being given; 0 while nothing is moved. A ledger that is divided into
    shards, and is none of them, has the index -1.
    """

    set_id: str
    index: int
    count: int
    to: int = 0

    def __str__(self) -> str:
        return f"{self.set_id}/{self.index}/{self.count}/{self.to}"

    @classmethod
    def read(cls, text: str) -> Stamp:
        """A stamp as it was written."""
        set_id, index, count, to = text.split("/")
        return cls(set_id, int(index), int(count), int(to))
