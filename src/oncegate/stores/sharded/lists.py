"""Lists over shards: every shard is asked, and what it answers is shown with its place in the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final, TypeVar

from msgspec.structs import replace

from oncegate.errors import PartUnavailable
from oncegate.model.parking import Parked
from oncegate.model.states import State
from oncegate.store import Entry, EntryDetail, EntryFilter, Session
from oncegate.stores.sharded.shard_map import inner_id, outer_id

T = TypeVar("T")
FIRST: Final = 0
_OPEN: Final = frozenset({State.IN_FLIGHT, State.RETRYABLE, State.UNKNOWN, State.HELD, State.QUARANTINED})


class ShardedLists:
    """`entries`, `detail`, `parked`, `counts`, `surfaces` and `stranded`. Mixed into the session."""

    _count: int
    _last: int
    _sessions: dict[int, Session]

    def _at(self, shard: int) -> Session:
        raise NotImplementedError

    def _all(self, ask: Callable[[Session], Sequence[T]]) -> Iterator[tuple[int, T]]:
        """Asks every shard; all must answer, because a list that is not whole would mislead."""
        for shard in range(self._count):
            for one in ask(self._at(shard)):
                yield shard, one

    def entries(self, wanted: EntryFilter, before_id: int | None, limit: int) -> list[Entry]:
        """Lists entries by number, the largest first: shard after shard."""
        top, below = inner_id(before_id) if before_id else (self._count - 1, None)
        found: list[Entry] = []
        for shard in range(min(top, self._count - 1), -1, -1):
            before = below if shard == top else None
            some = self._at(shard).entries(_within(wanted, shard), before, limit - len(found))
            found += self._shifted(
                [one for one in map(shown_entry, some, [shard] * len(some)) if one], shard
            )
            if len(found) >= limit:
                break
        return found

    def oldest_entries(self, wanted: EntryFilter, after_id: int, limit: int) -> list[Entry]:
        """Lists entries by number, the smallest first: shard after shard."""
        first, above = inner_id(after_id)
        found: list[Entry] = []
        for shard in range(first, self._count):
            after = above if shard == first else 0
            some = self._at(shard).oldest_entries(_within(wanted, shard), after, limit - len(found))
            found += self._shifted(
                [one for one in map(shown_entry, some, [shard] * len(some)) if one], shard
            )
            if len(found) >= limit:
                break
        return found

    def _shifted(self, entries: list[Entry], shard: int) -> list[Entry]:
        """Entries in the time of the first shard."""
        if not entries or shard == FIRST:
            return entries
        shift = self._shift(shard)
        return [
            replace(
                one,
                lease_until_ticks=None if one.lease_until_ticks is None else one.lease_until_ticks + shift,
                retry_at_ticks=None if one.retry_at_ticks is None else one.retry_at_ticks + shift,
            )
            for one in entries
        ]

    def _shift(self, shard: int) -> int:
        try:
            first = self._at(FIRST).now_ticks()
        except PartUnavailable:
            return 0
        finally:
            self._last = FIRST
        return first - self._sessions[shard].now_ticks()

    def detail(self, entry_id: int) -> EntryDetail | None:
        """Reads one entry of the shard that its number names."""
        shard, number = inner_id(entry_id)
        return shown_detail(self._at(shard).detail(number), shard) if shard < self._count else None

    def parked(self, surface: str, tenant: str | None) -> Parked:
        """Adds up what waits on all shards that can be reached: a limit must not stop the others."""
        found = [session.parked(surface, tenant) for session in self._reachable()]
        return Parked(sum(one.entries for one in found), sum(one.bytes for one in found))

    def counts(self) -> dict[State, int]:
        """Adds up open entries by state, as for all ledgers without review."""
        total: Counter[State] = Counter()
        for _, (state, count) in self._all(lambda session: list(session.counts().items())):
            total[state] += count if state in _OPEN else 0
        return dict(+total)

    def surfaces(self) -> list[str]:
        """Names the surfaces of all shards."""
        return sorted({name for _, name in self._all(lambda session: session.surfaces())})

    def stranded(self, limit: int, surfaces: Sequence[str] | None = None) -> list[EntryDetail]:
        """Finds what a crash left on every shard that can be reached, those due first at the front."""
        found: list[list[EntryDetail]] = []
        for shard in range(self._count):
            try:
                some = [shown_detail(one, shard) for one in self._at(shard).stranded(limit, surfaces)]
            except PartUnavailable:
                continue
            whole = [one for one in some if one is not None]
            shown = self._shifted([one.entry for one in whole], shard)
            found.append([replace(one, entry=entry) for one, entry in zip(whole, shown, strict=True)])
        self._last = FIRST
        return sorted(chain.from_iterable(found), key=_due)[:limit]

    def _reachable(self) -> Iterator[Session]:
        for shard in range(self._count):
            try:
                yield self._at(shard)
            except PartUnavailable:
                continue


def shown_entry(entry: Entry | None, shard: int) -> Entry | None:
    """An entry under the number that names its shard."""
    return None if entry is None else replace(entry, entry_id=outer_id(shard, entry.entry_id))


def shown_detail(found: EntryDetail | None, shard: int) -> EntryDetail | None:
    """An entry with all that belongs to it, under the number that names its shard."""
    if found is None:
        return None
    number = outer_id(shard, found.entry.entry_id)
    records = tuple(replace(record, entry_id=number) for record in found.records)
    return replace(found, entry=replace(found.entry, entry_id=number), records=records)


def _within(wanted: EntryFilter, shard: int) -> EntryFilter:
    """The filter as a shard understands it."""
    if wanted.above_id is None:
        return wanted
    of, number = inner_id(wanted.above_id)
    return replace(wanted, above_id=number if of == shard else None if of < shard else wanted.above_id)


def _due(found: EntryDetail) -> tuple[int, int]:
    entry = found.entry
    return max(entry.lease_until_ticks or 0, entry.retry_at_ticks or 0), entry.entry_id
