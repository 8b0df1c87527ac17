"""Offsets of assigned Kafka partitions: which records are done, and up to where all of them are. Pure.

Only the contiguous prefix may be committed: a record that is not done pins it, whatever is done behind it.
A partition that is assigned gets a new epoch. What belongs to an earlier epoch changes nothing: after a
rebalance another member may be further on.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Final

from msgspec import Struct

Place = tuple[str, int]  # topic and partition

_EPOCHS: Final = count(1)  # never the same twice in a process, also where a source is opened again


class Handle(Struct, frozen=True):
    """Where one record is, and in which epoch it was received."""

    place: Place
    epoch: int
    offset: int


class PartitionOffsets:
    """One assigned partition. Offsets may have gaps: compaction and transactions leave some."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._open: deque[int] = deque()
        self._done: set[int] = set()
        self._reached: int | None = None
        self._sent: int | None = None
        self._committed: int | None = None

    def receive(self, offset: int) -> None:
        """Notes a record that came; offsets come in order."""
        self._open.append(offset)

    def finish(self, offset: int) -> None:
        """Notes a record that is on record in the ledger."""
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            first = self._open.popleft()
            self._done.discard(first)
            self._reached = first + 1

    @property
    def held(self) -> int:
        """How many records have come and are not below the prefix."""
        return len(self._open)

    def to_commit(self, *, is_last: bool) -> int | None:
        """The offset to commit, taken as sent; None where nothing is new.

        The last one before a partition leaves repeats what was sent and is not answered yet.
        """
        if self._reached == (self._committed if is_last else self._sent):
            return None
        self._sent = self._reached
        return self._reached

    def answered(self, offset: int, *, is_taken: bool) -> None:
        """Notes the broker's answer to a commit; one that was not taken is sent again."""
        if is_taken and offset == self._sent:
            self._committed = offset
        elif not is_taken:
            self._sent = None


class AssignedOffsets:
    """All partitions that this consumer has now."""

    def __init__(self) -> None:
        self._known: dict[Place, PartitionOffsets] = {}

    def assign(self, places: list[Place]) -> None:
        """Begins again with these partitions."""
        for place in places:
            self._known[place] = PartitionOffsets(next(_EPOCHS))

    def forget(self, places: list[Place]) -> None:
        """Lets go of these partitions: what comes of their records is not ours to commit."""
        for place in places:
            self._known.pop(place, None)

    def receive(self, place: Place, offset: int) -> Handle | None:
        """Notes a record that came; None where its partition was taken away meanwhile."""
        found = self._known.get(place)
        if found is None:
            return None
        found.receive(offset)
        return Handle(place, found.epoch, offset)

    def finish(self, handle: Handle) -> bool:
        """Notes a record that is done; False, and nothing changes, where it is of an earlier epoch."""
        if not self.is_current(handle):
            return False
        self._known[handle.place].finish(handle.offset)
        return True

    def is_current(self, handle: Handle) -> bool:
        """Whether the partition is still the one that the record was received from."""
        found = self._known.get(handle.place)
        return found is not None and found.epoch == handle.epoch

    def to_commit(self, places: list[Place] | None = None, *, is_last: bool = False) -> dict[Place, int]:
        """What to commit now, of these partitions or of all; it is taken as sent."""
        found: dict[Place, int] = {}
        for place, one in self._known.items():
            offset = one.to_commit(is_last=is_last) if places is None or place in places else None
            if offset is not None:
                found[place] = offset
        return found

    def answered(self, place: Place, offset: int, *, is_taken: bool) -> None:
        """Notes the broker's answer to a commit."""
        if place in self._known:
            self._known[place].answered(offset, is_taken=is_taken)

    def full(self, most: int) -> list[Place]:
        """The partitions in which a record that is not done holds up so many others."""
        return [place for place, one in self._known.items() if one.held >= most]

    def places(self) -> list[Place]:
        """The partitions that this consumer has."""
        return list(self._known)
