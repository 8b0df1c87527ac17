"""The pruner: forgets keys that are older than their surface's retention, a little at a time.

First it looks, which changes nothing; then it forgets in steps of a few hundred entries, each a short unit
of its own. Must never forget by a wall clock that has just leapt ahead: the ledger notes what time it was,
and a leap has to last before it is believed. Any number of pruners may run at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from oncegate.clock import Clock
from oncegate.errors import StoreBusy
from oncegate.gate.facade import GateOnStore
from oncegate.maintenance.schedule import Stopping, never
from oncegate.model.durations import format_duration
from oncegate.model.retention import Sighting, forget_before_ms
from oncegate.model.surface import SurfaceRule
from oncegate.store import EVERY_TENANT, Forgetting, Posting, Session, Store, Tenants, UnusedNames
from oncegate.store.notices import RETENTION, RETENTION_KEPT_MS, SUBJECT

_log: Final = logging.getLogger("oncegate.pruner")
STEP_ENTRIES: Final = 500  # about 10 ms of writing
LOOK_ENTRIES: Final = 2_000  # read in one go
LOOKED_MAX: Final = 100_000  # a bounded run; what is left over comes next time
FORGOTTEN_MAX: Final = 20_000
NAMES_KEPT: Final = 10_000  # about 2 MB; a ledger with so many is not searched for those that nothing uses
NAMES_STEP: Final = 5_000
NAMES_MAX: Final = 200_000
SWEEP_EVERY: Final = timedelta(days=1)  # then also what was passed over is looked at again


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one run may look at and forget of one surface."""

    looked_max: int = LOOKED_MAX
    forgotten_max: int = FORGOTTEN_MAX
    look_entries: int = LOOK_ENTRIES
    names_kept: int = NAMES_KEPT


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose entries shall go, from before which moment, and who says so.

    `refused`: also what waits for its caller's next try and has done nothing.
    """

    surface: str
    before_ms: int
    actor: str
    refused: bool = False
    tenants: Tenants = EVERY_TENANT


@dataclass(slots=True)
class DueKeys:
    """What is due, and where the next look begins."""

    entries: list[int] = field(default_factory=list)
    looked: int = 0
    next_after: int = 0
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What one run did for one surface, or for some tenants of it; not complete: there may be more."""

    surface: str
    before_ms: int
    entries: int
    looked: int
    is_complete: bool
    longest_step_ms: int = 0
    tenants: Tenants = EVERY_TENANT


@dataclass(slots=True)
class PruneReport:
    """What one run did. `clock_is_doubted`: the wall clock leapt ahead and was not believed."""

    surfaces: list[Forgotten] = field(default_factory=list)
    room: list[str] = field(default_factory=list)
    clock_is_doubted: bool = False
    names: int = 0  # interned names that nothing used any more, and that were removed

    @property
    def entries(self) -> int:
        """How many entries were forgotten."""
        return sum(item.entries for item in self.surfaces)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was due has gone."""
        return all(item.is_complete for item in self.surfaces)


class Pruner:
    """Forgets for the surfaces registered in this process, by their own retention.

    `store` is one shard of the gate's ledger, if that has shards.
    """

    def __init__(
        self, gate: GateOnStore, *, bounds: Bounds | None = None, store: Store | None = None
    ) -> None:
        self._gate, self._store = gate, store or gate.engine.store
        self._bounds = bounds or Bounds()
        self._places: dict[tuple[str, Tenants], int] = {}
        self._swept_at_ms: int | None = None

    def run_once(self, stopping: Stopping = never) -> PruneReport:
        """Makes room and forgets what is due, within the bounds; from a thread."""
        store, clock = self._store, self._gate.engine.clock
        self._gate.engine.obey()
        report = PruneReport(room=store.make_room(clock.wall_ms()))
        self._begin_sweep(clock)
        session = store.connect()
        try:
            now = sight(session, clock)
            report.clock_is_doubted = now.doubted_since_ms is not None
            for surface in self._gate.engine.surfaces:
                if stopping():
                    break
                say_retention(session, surface.rule, clock.wall_ms())
                for tenants, retention in by_retention(surface.rule):
                    before_ms = forget_before_ms(now.wall_ms, retention, surface.rule.skew_max)
                    wanted = Wanted(surface.name, before_ms, "pruner", surface.caller_retries, tenants)
                    report.surfaces.append(self._prune(session, wanted, now.wall_ms))
            if not stopping():
                report.names = drop_unused_names(store, session, self._bounds.names_kept)
        finally:
            session.close()
        return report

    def _begin_sweep(self, clock: Clock) -> None:
        """Once a day begins at the oldest entry again; in between, where the last run stopped."""
        now = clock.ticks_ms()
        if self._swept_at_ms is None or now - self._swept_at_ms >= SWEEP_EVERY // timedelta(milliseconds=1):
            self._places.clear()
            self._swept_at_ms = now

    def _prune(self, session: Session, wanted: Wanted, now_ms: int) -> Forgotten:
        whose = (wanted.surface, wanted.tenants)
        place = self._places.get(whose, 0)
        with self._store.look() as reader:
            found = find_due(reader, wanted, now_ms, place, self._bounds)
        done = forget(self._store, session, self._gate.engine.clock, wanted, found)
        is_done = done.entries == len(found.entries)
        self._places[whose] = found.next_after if is_done else place
        return done


def by_retention(rule: SurfaceRule) -> Iterator[tuple[Tenants, timedelta]]:
    """Whose keys of a surface are kept for how long: one walk for each retention, not for each tenant."""
    own, least = rule.retention_by_partner, rule.payload_retention or timedelta(0)
    yield Tenants(tuple(sorted(own))), max(rule.retention, least)
    for retention in sorted(set(own.values())):
        names = tuple(sorted(name for name in own if own[name] == retention))
        yield Tenants(names, False), max(retention, least)


def say_retention(session: Session, rule: SurfaceRule, at_ms: int) -> None:
    """Puts up by which retention a surface is pruned, for people who see the ledger only."""
    text = rule.retention_text.encode()
    with session.unit():
        session.post(Posting(RETENTION, rule.name, "pruner", text, at_ms, RETENTION_KEPT_MS))
        if rule.subject_path is not None:
            field = ".".join(rule.subject_path).encode()
            session.post(Posting(SUBJECT, rule.name, "pruner", field, at_ms, RETENTION_KEPT_MS))


def drop_unused_names(store: Store, session: Session, kept: int = NAMES_KEPT) -> int:
    """Marks names that nothing uses, and removes those that were marked long ago; tells how many went."""
    with store.look() as reader:
        found = reader.unused_names(kept, NAMES_MAX)
    removed = 0
    for place in range(0, max(map(len, (found.fresh, found.waiting, found.due))), NAMES_STEP):
        step = slice(place, place + NAMES_STEP)
        with session.unit():
            removed += session.drop_names(
                UnusedNames(found.fresh[step], found.waiting[step], found.due[step])
            )
    return removed


def sight(session: Session, clock: Clock, *, is_certain: bool = False) -> Sighting:
    """Asks the ledger which wall time may be believed, and warns where that is not the clock's."""
    with session.unit():
        now = session.sight(clock.wall_ms(), is_certain=is_certain)
    if now.doubted_since_ms is not None:
        _log.warning(
            "the wall clock is %s ahead of the ledger; keys are kept as if it were not. If the clock is "
            "right and this program was off for so long, run: oncegate prune --believe-clock",
            format_duration(timedelta(seconds=(clock.wall_ms() - now.wall_ms) // 1000)),
        )
    return now


def find_due(session: Session, wanted: Wanted, now_ms: int, after_id: int, bounds: Bounds) -> DueKeys:
    """Walks entries in order of arrival until they are recent or a bound is reached; changes nothing."""
    found, surface, before_ms = DueKeys(next_after=after_id), wanted.surface, wanted.before_ms
    while found.looked < bounds.looked_max and len(found.entries) < bounds.forgotten_max:
        seen = session.due(
            surface,
            before_ms,
            now_ms,
            found.next_after,
            bounds.look_entries,
            refused=wanted.refused,
            tenants=wanted.tenants,
        )
        room = bounds.forgotten_max - len(found.entries)
        found.entries += seen.entries[:room]
        found.looked += seen.looked
        if len(seen.entries) > room:
            found.next_after = found.entries[-1]
        elif seen.is_end:
            found.is_complete = True
            break
        else:
            found.next_after = seen.last_id
    return found


def forget(
    store: Store,
    session: Session,
    clock: Clock,
    wanted: Wanted,
    found: DueKeys,
    *,
    told: Callable[[int], None] = lambda removed: None,
) -> Forgotten:
    """Forgets what was found, step by step; stops where others keep the ledger busy.

    Where only one can write at a time, rests after each step for as long as it took: other writers
    would otherwise find the ledger taken again and again.
    """
    removed = longest = 0
    is_complete = found.is_complete
    for step in _steps(found.entries, STEP_ENTRIES):
        request = Forgetting(
            wanted.surface,
            wanted.before_ms,
            step,
            clock.wall_ms(),
            wanted.actor,
            wanted.refused,
            wanted.tenants,
        )
        try:
            count, took = _forget_step(session, clock, request)
        except StoreBusy:
            is_complete = False
            break
        removed, longest = removed + count, max(longest, took)
        told(removed)
        if store.capabilities.one_writer:
            clock.pause(took / 1000)
    return Forgotten(
        wanted.surface, wanted.before_ms, removed, found.looked, is_complete, longest, wanted.tenants
    )


def _forget_step(session: Session, clock: Clock, request: Forgetting) -> tuple[int, int]:
    """Runs one step and tells how many entries went and how long the ledger was held."""
    with session.unit():
        began = clock.ticks_ms()
        count = session.forget(request)
    return count, clock.ticks_ms() - began


def forget_older(
    store: Store,
    clock: Clock,
    surface: str,
    age: timedelta,
    *,
    actor: str,
    bounds: Bounds,
    is_certain: bool = False,
    told: Callable[[int], None] = lambda removed: None,
) -> tuple[Forgotten, bool]:
    """Forgets a surface's entries above an age, whatever its retention; also tells if the clock leapt."""
    session = store.connect()
    try:
        now = sight(session, clock, is_certain=is_certain)
        wanted = Wanted(surface, now.wall_ms - age // timedelta(milliseconds=1), actor)
        with store.look() as reader:
            found = find_due(reader, wanted, now.wall_ms, 0, bounds)
        done = forget(store, session, clock, wanted, found, told=told)
        return done, now.doubted_since_ms is not None
    finally:
        session.close()


def _steps(entries: Sequence[int], size: int) -> Iterable[tuple[int, ...]]:
    for start in range(0, len(entries), size):
        yield tuple(entries[start : start + size])
