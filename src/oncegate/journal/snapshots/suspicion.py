"""Which snapshot looks wrong first: a jump in a count, or objects that suddenly have the same content."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from oncegate.journal.snapshots.beliefs import LEDGER
from oncegate.journal.snapshots.manifest import Manifest

JUMP: Final = 0.2  # of a count, from one snapshot to the next
JUMP_MIN: Final = 10  # objects; fewer are chance
SAME_MIN: Final = 3  # content duplicates more than before


class SnapshotFacts(Struct, frozen=True):
    """A snapshot in the timeline: its number, hash and time, and by belief the count and the duplicates."""

    number: int
    hash: str
    wall_ms: int
    clock_back_ms: int
    beliefs: dict[str, tuple[int, int]]
    cause: str = ""

    @classmethod
    def of(cls, manifest: Manifest, digest: str) -> SnapshotFacts:
        """The facts of a manifest."""
        beliefs = {name: (one.count, one.content_duplicates) for name, one in manifest.beliefs.items()}
        return cls(
            manifest.number, digest, manifest.wall_ms, manifest.clock_back_ms, beliefs, manifest.cause
        )


class Suspicion(Struct, frozen=True):
    """Why a snapshot looks wrong, beside the one before it."""

    number: int
    last_good: int
    belief: str
    why: str


class _Course:
    """How one belief went so far. Duplicates count from the last snapshot without new ones, so that a slow
    rise is found too, with the snapshot before it as the last good one."""

    def __init__(self, name: str, facts: SnapshotFacts) -> None:
        self.name = name
        self.count, self.same = facts.beliefs[name]
        self.last, self.clean = facts.number, facts.number

    def judge(self, facts: SnapshotFacts) -> Suspicion | None:
        count, same = facts.beliefs[self.name]
        was, self.count = self.count, count
        before, self.last = self.last, facts.number
        if same <= self.same:
            self.same, self.clean = same, facts.number
        elif same - self.same >= SAME_MIN:
            rise, last_good = f"{same - self.same:,} more ({self.same:,} to {same:,})", self.clean
            self.same, self.clean = same, facts.number
            why = f"objects with the content of another one: {rise}"
            return Suspicion(facts.number, last_good, self.name, why)
        if abs(count - was) >= max(JUMP_MIN, JUMP * was):
            return Suspicion(facts.number, before, self.name, f"a jump from {was:,} to {count:,} objects")
        return None


def suspicions(timeline: Iterable[SnapshotFacts]) -> list[Suspicion]:
    """What looks wrong, oldest first."""
    courses: dict[str, _Course] = {}
    found: list[Suspicion] = []
    for facts in timeline:
        for name in sorted(facts.beliefs):
            if name == LEDGER:
                continue
            if name not in courses:
                courses[name] = _Course(name, facts)
            elif (one := courses[name].judge(facts)) is not None and not facts.cause:
                found.append(one)
    return found
