"""Contents: which events would change the same thing in the same way, under different keys.

A reservation may carry a mark of its event's content; it is kept with the entry. The scan walks the marks
in the order of their commits and never passes one that may still commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from oncegate.store.claims import Entry


class Pair(Struct, frozen=True, gc=False):
    """Two entries with the same mark: the later one, and the nearest before it."""

    entry_id: int
    other_id: int


class ContentPage(Struct, frozen=True):
    """Pairs among the marks looked at, and the position of the last of these."""

    pairs: tuple[Pair, ...]
    looked: int
    position: int


class Flag(Struct, frozen=True, gc=False):
    """Asks to mark two entries as duplicates of each other and to stop what has not run."""

    entry_id: int
    other_id: int
    at_ms: int
    actor: str


class Flagged(Struct, frozen=True):
    """What flagging a pair came to: whether it is new, and which entries were stopped."""

    is_new: bool
    stopped: tuple[int, ...] = ()


class Dismissal(Struct, frozen=True):
    """A person's word that a flagged pair is meant to be two."""

    entry_id: int
    at_ms: int
    actor: str
    note: str


class Duplicate(Struct, frozen=True):
    """A flagged pair as people see it; what was forgotten since is None.

    `ran_with` is the nearest equal entry before it that ran, where the later one ran: it need not be the
    other half of the pair, which may have been stopped.
    """

    pair: Pair
    entry: Entry | None
    other: Entry | None
    target: str
    compensation: str | None
    flagged_at_ms: int
    dismissed_at_ms: int | None = None
    dismissed_by: str | None = None
    note: str | None = None
    ran_with: Entry | None = None


class Doubled(Struct, frozen=True, gc=False):
    """Entries of one surface that ran after an equal one had run, and that no person has decided on."""

    surface: str
    count: int
    oldest_at_ms: int


class Unscanned(Struct, frozen=True, gc=False):
    """The next mark that the scan has not looked at: when its event came, and what the scan waits for."""

    received_at_ms: int
    waits_for: str = ""


class Contents(Protocol):
    """Marks of content, pairs of equal ones, and what was done about them."""

    def contents_after(self, position: int, limit: int, window_ms: int) -> ContentPage:
        """Looks at the next `limit` marks and pairs each with the nearest equal one before it.

        Entries that failed finally do not count, and neither do pairs received further apart than the
        window. The work is bounded by `limit`, whatever the ledger holds. Only reads.
        """

    def scanned(self) -> int:
        """The position up to which marks have been looked at."""

    def unscanned(self) -> Unscanned | None:
        """The next mark that the scan has not looked at; None where it has looked at all."""

    def note_scanned(self, position: int) -> None:
        """Keeps a position for the next scan; one that is behind what is known changes nothing."""

    def flag(self, flags: Sequence[Flag]) -> list[Flagged]:
        """Flags pairs, each once however often it is asked for, with one log record an entry.

        An entry of the pair that may still run and certainly is not running, retryable or held, is
        quarantined, with a log record and the other's number in its reason. What is in flight, in doubt or
        final is only marked. A pair with an entry in flight stays undecided: asked for again, it is looked
        at again.
        """

    def undecided(self, limit: int) -> list[Pair]:
        """Pairs that had an entry in flight when they were last looked at, oldest first."""

    def duplicates(self, before_id: int | None, limit: int, *, dismissed: bool) -> list[Duplicate]:
        """Lists pairs, newest first, by the later entry's number; dismissed ones only if asked for."""

    def open_duplicates(
        self, after_id: int, limit: int, *, ran: bool = False, surface: str | None = None
    ) -> list[Duplicate]:
        """Lists pairs that were not dismissed, oldest first, by the later entry's number.

        With `ran`, those that `doubled` counts. `surface` is the later one's. As quick however many were
        dismissed: this is what waits for a person.
        """

    def open_pairs(self, after_id: int, limit: int) -> list[Pair]:
        """The numbers of pairs that were not dismissed, in the same order, without what belongs to them."""

    def doubled(self) -> list[Doubled]:
        """Counts pairs that were not dismissed and whose change ran twice, by the later one's surface.

        The later entry is committed, and so is some equal one before it within 72 hours, whichever stand
        between the two. The work grows with the open pairs and their groups only.
        """

    def dismiss(self, dismissal: Dismissal) -> bool:
        """Notes a person's word on a pair, with one log record; False if there was none to dismiss."""
