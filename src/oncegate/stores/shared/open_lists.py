"""Lists of open entries for ledgers that address entries by key and keep an index of those that are open.

Numbers of entries are made of keys there, so lists are in the order of numbers, which is no order of time.
What is found by the index is read as it is now before it is listed. Must stay bounded: at most so many
entries are read for a list, however many are open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from oncegate.model.decisions import Verb
from oncegate.model.parking import Parked
from oncegate.model.states import State
from oncegate.store import Entry, EntryDetail, EntryFilter, Ruling
from oncegate.store.census import checked_prefix

PAGE_KEYS: Final = 200  # entries that are read at once
READ_MAX: Final = 50_000  # entries that are read for one list
KEY_DIGITS: Final = 48
WAITING: Final = frozenset({State.HELD, State.UNKNOWN, State.QUARANTINED})
RUNNING: Final = frozenset({State.IN_FLIGHT, State.RETRYABLE})


def number_of(key: bytes) -> int:
    """The number that people and logs know an entry by: it is made of the key."""
    return int.from_bytes(key[:7]) + 1


def can_be_said(ruling: Ruling) -> bool:
    """Whether a decision names the entry of its key, and is one that ledgers without review carry out."""
    return ruling.entry_id == number_of(ruling.key) and ruling.verb is not Verb.RETRY


class OpenLists:
    """`entries`, `detail`, `parked`, `counts`, `surfaces` and `stranded`. Mixed into a session."""

    _in_due_order = False  # whether `_due_keys` begins with what is due first

    def _open_keys(self, *, waiting: bool, running: bool) -> list[bytes]:
        """Keys of open entries: those that wait for a person, and those that are run or tried again."""
        raise NotImplementedError

    def _due_keys(self, limit: int, now: int) -> list[bytes]:
        """Keys of entries that may be stranded: more than that, in the order of when they are due."""
        raise NotImplementedError

    def details(self, keys: Sequence[bytes]) -> list[EntryDetail | None]:
        """Reads entries by key."""
        raise NotImplementedError

    def now_ticks(self) -> int:
        """The ledger's own time."""
        raise NotImplementedError

    def entries(self, wanted: EntryFilter, before_id: int | None, limit: int) -> list[Entry]:
        """Lists open entries by number, the largest first. A whole key finds a final entry too."""
        found = self._read_in_turn(self._candidates(wanted, before_id))
        return list(islice((one.entry for one in found if wanted.fits(one)), limit))

    def oldest_entries(self, wanted: EntryFilter, after_id: int, limit: int) -> list[Entry]:
        """Lists open entries by number, the smallest first."""
        later = [key for key in self._candidates(wanted, None)[::-1] if number_of(key) > after_id]
        fitting = (one.entry for one in self._read_in_turn(later) if wanted.fits(one))
        return list(islice(fitting, limit))

    def _candidates(self, wanted: EntryFilter, before_id: int | None) -> list[bytes]:
        prefix, states = checked_prefix(wanted.key_prefix or ""), frozenset(wanted.states or State)
        if len(prefix) >= KEY_DIGITS and not len(prefix) % 2:
            keys = [bytes.fromhex(prefix)]
        else:
            keys = self._open_keys(waiting=bool(states & WAITING), running=bool(states & RUNNING))
        numbered = [(number_of(key), key) for key in keys if key.hex().startswith(prefix)]
        return [
            key for number, key in sorted(numbered, reverse=True) if not before_id or number < before_id
        ]

    def _read_in_turn(self, keys: Sequence[bytes]) -> Iterator[EntryDetail]:
        for start in range(0, min(len(keys), READ_MAX), PAGE_KEYS):
            yield from filter(None, self.details(keys[start : start + PAGE_KEYS]))

    def detail(self, entry_id: int) -> EntryDetail | None:
        """Reads one open entry by its number."""
        keys = [key for key in self._open_keys(waiting=True, running=True) if number_of(key) == entry_id]
        return next(self._read_in_turn(keys), None)

    def parked(self, surface: str, tenant: str | None) -> Parked:
        """Counts what waits at a surface; at most `READ_MAX` entries are looked at."""
        wanted = EntryFilter(tuple(WAITING), surface, tenant)
        found = [one for one in self._read_in_turn(self._candidates(wanted, None)) if wanted.fits(one)]
        return Parked(len(found), sum(len(one.body or b"") for one in found))

    def _all_open(self) -> list[EntryDetail]:
        found = self._read_in_turn(self._open_keys(waiting=True, running=True))
        return [one for one in found if not one.entry.state.is_final]

    def counts(self) -> dict[State, int]:
        """Counts open entries by state."""
        return dict(Counter(one.entry.state for one in self._all_open()))

    def surfaces(self) -> list[str]:
        """Names the surfaces that have open entries."""
        return sorted({one.entry.surface for one in self._all_open()})

    def stranded(self, limit: int, surfaces: Sequence[str] | None = None) -> list[EntryDetail]:
        """Finds claims whose lease has expired and failures that may be tried again, first due first."""
        now, found = self.now_ticks(), list[EntryDetail]()
        for detail in self._read_in_turn(self._due_keys(READ_MAX, now)):
            entry = detail.entry
            is_left = entry.state in RUNNING and (entry.lease_until_ticks or 0) <= now
            if is_left and (surfaces is None or entry.surface in surfaces):
                found.append(detail)
            if self._in_due_order and len(found) == limit:
                break
        return sorted(found, key=_due)[:limit]


def _due(found: EntryDetail) -> tuple[int, int]:
    entry = found.entry
    return max(entry.lease_until_ticks or 0, entry.retry_at_ticks or 0), entry.entry_id
