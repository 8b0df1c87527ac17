"""What the processes of one ledger have seen recently, kept for all of them (C6).

Two halves of a duplicate may reach two processes. Each process brings what it saw, about once a second, and
learns who came with the same before. Observations, not decisions: bounded by rows and age, and lost
without harm. Contents are hashes.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

SEEN_KEPT_MS: Final = 60 * 60 * 1000  # what is older is forgotten
SEEN_ROWS_MAX: Final = 20_000  # contents of one surface; about 2 MB
REPEATS_KEPT_MAX: Final = 256  # of one surface
TRIMMED_MAX: Final = 4_000  # rows that one call removes


class SeenContent(Struct, frozen=True, gc=False):
    """A content of new events of a surface: who had it, and for how long that is worth knowing.

    `entry_id` is the latest of `times` entries with it. `content` is a signed number of 64 bits.
    """

    surface: str
    content: int
    entry_id: int
    at_ms: int
    within_ms: int
    times: int = 1


class SeenRepeat(Struct, frozen=True, gc=False):
    """An arrival of a known key: when, of which entry, and how many new ones its process had before it."""

    surface: str
    at_ms: int
    entry_id: int
    first_at_ms: int
    fresh: int


class Seen(Struct, frozen=True):
    """What one process has seen since it last asked; no content twice. `trims` also forgets what is old."""

    contents: tuple[SeenContent, ...]
    repeats: tuple[SeenRepeat, ...]
    now_ms: int
    trims: bool = False

    @property
    def surfaces(self) -> set[str]:
        """Where it was seen."""
        return {one.surface for one in self.contents} | {one.surface for one in self.repeats}


class Before(Struct, frozen=True, gc=False):
    """The latest entry that had a content, and how many had it by then."""

    entry_id: int
    at_ms: int
    shared_by: int


class Met(Struct, frozen=True):
    """For each content who had it before, if that was within its time; and recent repeats, oldest first.

    The repeats are those of the surfaces that were asked about, without what was brought.
    """

    before: tuple[Before | None, ...] = ()
    recent: tuple[SeenRepeat, ...] = ()


class SeenByAll(Protocol):
    """What was seen by any process."""

    def meet(self, seen: Seen) -> Met:
        """Keeps what a process has seen, and tells what was there before it.

        Of two processes that bring the same content at once, the second learns of the first.
        """
