"""Which entries are the same change as another one, by the pairs that the content scan found.

Before anything is let run, it is known whether the same change has run, is about to, or would run twice in
the same plan. Must never decide: a person says whether one of each, all or none run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from msgspec import Struct

from oncegate.model.states import State
from oncegate.store import Entry, EntryDetail, Facet, Pair, Session, offers

PAGE_PAIRS: Final = 5_000
TWINS_SHOWN: Final = 3
# Where an entry has run, or runs without another word of a person.
_RUNS: Final = frozenset({State.IN_FLIGHT, State.COMMITTED, State.RETRYABLE, State.UNKNOWN})


class Choice(Enum):
    """What becomes of entries of a plan that are the same change as another one."""

    ONE = "one"
    ALL = "all"
    NONE = "none"


class Doubles(Struct, frozen=True):
    """Entries of a plan that are flagged as the same change.

    `extras` are those beyond the first of each change, which would make it run once more. `members` are all
    of the plan that belong to such a change.
    """

    extras: frozenset[int] = frozenset()
    members: frozenset[int] = frozenset()

    def left_out(self, choice: Choice) -> frozenset[int]:
        """The entries that a choice leaves as they are."""
        if choice is Choice.ALL:
            return frozenset()
        return self.extras if choice is Choice.ONE else self.members


class SameChanges:
    """All open pairs, joined to groups: equal to the same is equal. Made once for a page or a plan."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._above: dict[int, int] = {}
        for pair in pairs:
            one, other = sorted((self._top(pair.entry_id), self._top(pair.other_id)))
            self._above[other] = one
        self._groups: dict[int, list[int]] = {}
        for number in sorted(self._above):
            self._groups.setdefault(self._top(number), []).append(number)

    @classmethod
    def read(cls, session: Session) -> SameChanges:
        """The groups of a ledger; a ledger without review finds none."""
        return cls(_open_pairs(session) if offers(session, Facet.REVIEW) else ())

    @property
    def groups(self) -> Iterable[list[int]]:
        """Entries that are the same change, oldest first."""
        return self._groups.values()

    def others(self, entry_id: int) -> list[int]:
        """The entries that are the same change as one, oldest first."""
        if entry_id not in self._above:
            return []
        return [one for one in self._groups[self._top(entry_id)] if one != entry_id]

    def _top(self, number: int) -> int:
        """The oldest known of a group; the way there is made shorter for the next who asks."""
        path = []
        while (above := self._above.setdefault(number, number)) != number:
            path.append(number)
            number = above
        self._above.update(dict.fromkeys(path, number))
        return number


def doubles_among(session: Session, entries: Iterable[int]) -> Doubles:
    """Finds which of some entries, run together, would make a change run twice. Reads open pairs only."""
    planned = frozenset(entries)
    extras: set[int] = set()
    members: set[int] = set()
    for group in SameChanges.read(session).groups:
        mine = [number for number in group if number in planned]
        if not mine:
            continue
        rest = (number for number in group if number not in planned)
        spare = mine if ran_before(_read(session, rest)) is not None else mine[1:]
        if spare:
            extras.update(spare)
            members.update(mine)
    return Doubles(frozenset(extras), frozenset(members))


def twin_that_ran(session: Session, entry_id: int, same: SameChanges | None = None) -> Entry | None:
    """The first entry that is the same change as one and has run, or will without another word."""
    changes = same or SameChanges.read(session)
    return ran_before(_read(session, changes.others(entry_id)))


def twins_of(session: Session, entry_id: int, same: SameChanges) -> list[Entry]:
    """The first few entries that are the same change as one."""
    return list(_read(session, same.others(entry_id)[:TWINS_SHOWN]))


def ran_before(twins: Iterable[Entry]) -> Entry | None:
    """The first of some entries that has run, or will run without another word."""
    return next((one for one in twins if one.state in _RUNS), None)


def twin_remarks(session: Session, entry_id: int, same: SameChanges) -> list[str]:
    """What a person should know before an entry runs."""
    others = same.others(entry_id)
    if not others:
        return []
    shown = ", ".join(
        f"entry {one.entry_id} ({one.state.label})" for one in twins_of(session, entry_id, same)
    )
    more = f" and {len(others) - TWINS_SHOWN} more" if len(others) > TWINS_SHOWN else ""
    return [f"it is the same change as {shown}{more}, under another key"]


def refusal_of(seen: EntryDetail, ran: Entry) -> str:
    """Why an entry is not let run without a second confirmation."""
    return (
        f"entry {seen.entry.entry_id} is the same change as entry {ran.entry_id}, which is"
        f" {ran.state.label}: both will have run. If that is meant, confirm it: --doubles all"
    )


def _open_pairs(session: Session) -> Iterator[Pair]:
    after = 0
    while page := session.open_pairs(after, PAGE_PAIRS):
        yield from page
        after = page[-1].entry_id


def _read(session: Session, numbers: Iterable[int]) -> Iterator[Entry]:
    for number in numbers:
        seen = session.detail(number)
        if seen is not None:
            yield seen.entry
