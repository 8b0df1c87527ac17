"""Gives a sharded ledger more shards or fewer, or divides one ledger, while programs use it.

Virtual shards move one after the other. At every moment at most one database takes the keys of a virtual
shard, and that database itself refuses all others (`fences`): no list of shards that a program still has in
memory can make a key run twice. A move that was killed goes on from what the databases say. Claims that are
under way end where they began: a virtual shard moves when none of its leases is alive. Must never remove an
entry before its copy is committed, or let a copy be used before the entry is removed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, Final

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.crashpoints import CrashPoints
from oncegate.errors import BadUrl, ConfigError, StoreBusy, StoreCorrupt
from oncegate.store import Store
from oncegate.stores.sharded.engines import PostgresSide, SqliteSide
from oncegate.stores.sharded.fences import declare, other_uses, phases, set_phases, stamp_of, write_stamp
from oncegate.stores.sharded.shard_map import SHARDS_MAX, VIRTUALS, Stamp, rendezvous
from oncegate.stores.sharded.sides import LedgerSide, copy_entries
from oncegate.stores.shared.homes import ARRIVED, GONE, HERE, LEAVING

GROUP: Final = 64  # virtual shards that take no new claims at a time
ENTRIES_AT_ONCE: Final = 2_000  # whose keys are refused while they are copied; a virtual shard stays whole
PATIENCE_MS: Final = 30_000  # how long claims under way, and writers, are waited for
PAUSE_SECONDS: Final = 0.05
LOCK_PAUSE_SECONDS: Final = 0.5  # between tries to lock the table: writers go on meanwhile
DIVIDED: Final = -1  # the place of a ledger that is divided and is no shard itself

Tell = Callable[[str, int, int], None]  # what is done, how many so far, how many in all


class ReshardReport(Struct, frozen=True):
    """What was moved. `left`: virtual shards whose claims outlasted the wait; run it again."""

    shards: int
    virtual_shards: int
    entries: int
    left: int


class MovePlace:
    """A database of the move: its place in the longer list, and whether the new list has it."""

    def __init__(self, store: Any, index: int, is_new: bool) -> None:
        self.store, self.index, self.is_new = store, index, is_new
        store.connect().close()  # makes the tables where there are none, and checks those that there are
        kind = PostgresSide if store.capabilities.name == "postgres" else SqliteSide
        self.side: LedgerSide = kind(store.open_connection())

    def ticks(self) -> int:
        """The ledger's own time."""
        with self.store.look() as session:
            return int(session.now_ticks())


class Resharding:
    """One change of the list. `run` may be called again after anything."""

    def __init__(
        self,
        old: Sequence[Store],
        new: Sequence[Store],
        clock: Clock,
        crashpoints: CrashPoints | None = None,
        *,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        _check_lists(old, new)
        self._old, self._new, self._clock = list(old), list(new), clock
        self._crashpoints, self._patience_ms = crashpoints or CrashPoints(), patience_ms
        self._from = len(old) if len(old) > 1 else 0
        self._places: dict[int, MovePlace] = {}
        self._entries = self._moved = 0

    def run(self, tell: Tell) -> ReshardReport:
        """Fences, moves and stamps; raises ConfigError where these lists cannot be."""
        try:
            self._open()
            set_id = self._begin()
            left = self._move_all(tell)
            if not left:
                self._end(set_id)
        finally:
            for place in self._places.values():
                place.side.close()
        return ReshardReport(len(self._new), self._moved, self._entries, left)

    def _open(self) -> None:
        if not self._from:
            self._places[DIVIDED] = MovePlace(self._old[0], DIVIDED, is_new=False)
        for index, (was, will) in enumerate(zip_longest(self._old if self._from else (), self._new)):
            self._places[index] = MovePlace(was or will, index, is_new=was is None)

    def _begin(self) -> str:
        """Fences every database and says what it has, those without entries first."""
        stamps = {index: stamp_of(place.side) for index, place in self._places.items()}
        known = {stamp.set_id for stamp in stamps.values() if stamp is not None}
        if len(known) > 1:
            raise ConfigError("these databases belong to different sets of shards; nothing was changed")
        set_id = known.pop() if known else secrets.token_hex(8)
        to = len(self._new)
        for index, place in self._places.items():
            self._check(place, stamps[index])
        for index, place in sorted(self._places.items(), key=lambda item: not item[1].is_new):
            if stamps[index] not in {Stamp(set_id, index, self._from, to), Stamp(set_id, index, to)}:
                self._fence(place)
                write_stamp(place.side, Stamp(set_id, index, self._from, to), self._clock.wall_ms())
                self._crashpoints.hit("reshard.begun")
        return set_id

    def _check(self, place: MovePlace, stamp: Stamp | None) -> None:
        where, was, to = place.store.address, self._from, len(self._new)
        at = None if stamp is None else (stamp.index, stamp.count, stamp.to)
        if at in {(place.index, was, to), (place.index, to, 0)}:
            return  # this move, under way or at its end
        if place.index == DIVIDED and stamp is None:
            if uses := other_uses(place.side):
                raise ConfigError(
                    f"{where} has lanes or a feed (oncegate_{uses[0]} has rows), which shards do not have;"
                    " nothing was changed"
                )
        elif place.is_new and (stamp is None or at == (place.index, was, 0)):
            if place.side.run("SELECT 1 FROM oncegate_entry LIMIT 1"):
                raise ConfigError(f"{where} has entries; a new shard is an empty database")
        elif at != (place.index, was, 0):
            said = "no shard" if stamp is None else f"shard {stamp.index} of {stamp.to or stamp.count}"
            raise ConfigError(f"{where} is {said}, not shard {place.index} of {was}; nothing was changed")

    def _fence(self, place: MovePlace) -> None:
        """From here on the database itself refuses keys that it does not have."""
        home = rendezvous(self._from) if self._from else ()
        other = LEAVING if place.index == DIVIDED else GONE
        found = {
            f"{virtual:03x}": HERE if home and home[virtual] == place.index else other
            for virtual in range(VIRTUALS)
        }

        def fence() -> None:
            declare(place.side, found, self._clock.wall_ms())
            place.side.set_fence()

        self._alone(place, fence)

    def _alone(self, place: MovePlace, do: Callable[[], object]) -> None:
        """Does something in a transaction that no writer of entries overlaps; waits with pauses."""
        until = self._clock.ticks_ms() + self._patience_ms
        while True:
            try:
                place.side.begin(alone=True)
                do()
                place.side.commit()
            except StoreBusy:
                place.side.undo()
                if self._clock.ticks_ms() > until:
                    raise
                self._clock.pause(LOCK_PAUSE_SECONDS)
            except BaseException:
                place.side.undo()
                raise
            else:
                return

    def _move_all(self, tell: Tell) -> int:
        """Moves what is not in its place; returns how many virtual shards had claims for too long."""
        wanted = self._wanted()
        total, left = sum(map(len, wanted.values())), 0
        for source, names in wanted.items():
            for start in range(0, len(names), GROUP):
                left += self._move_group(self._places[source], names[start : start + GROUP])
                tell("moved virtual shards", self._moved, total)
        return left

    def _wanted(self) -> dict[int, list[str]]:
        """What is to be moved, by where it is; what was under way is brought to a clear state."""
        known = {index: phases(place.side) for index, place in self._places.items()}
        wanted: dict[int, list[str]] = {}
        for virtual, home in enumerate(rendezvous(len(self._new))):
            name = f"{virtual:03x}"
            owners = [index for index, said in known.items() if said.get(name) in (HERE, LEAVING)]
            if len(owners) > 1:
                raise StoreCorrupt(f"shards {owners} both have virtual shard {name}; nothing was moved")
            if not owners and known[home].get(name) != ARRIVED:
                raise StoreCorrupt(f"no shard has virtual shard {name}; nothing was moved")
            if not owners or (owners == [home] and known[home][name] == LEAVING):
                set_phases(self._places[home].side, [name], HERE, ARRIVED, LEAVING)
            elif owners != [home]:
                wanted.setdefault(owners[0], []).append(name)
        return wanted

    def _move_group(self, source: MovePlace, names: list[str]) -> int:
        """Waits until no claim of these is under way, and moves them; others stay where they are."""
        side = source.side
        self._alone(source, lambda: set_phases(side, names, LEAVING, HERE, LEAVING))
        try:
            live = self._move_ready(source, names)
        except ConfigError:  # another one is at work with them
            raise
        except (Exception, KeyboardInterrupt):
            with suppress(Exception):  # a database that cannot be reached is left to the next run
                self._stay(source, names)
            raise
        self._stay(source, sorted(live))
        return len(live)

    def _stay(self, source: MovePlace, names: list[str]) -> None:
        """What was not moved takes new claims again, but for a ledger that is divided."""
        if source.index != DIVIDED:
            set_phases(source.side, names, HERE, LEAVING)

    def _move_ready(self, source: MovePlace, names: list[str]) -> set[str]:
        """Moves those without claims under way; returns the others."""
        side = source.side
        self._crashpoints.hit("reshard.leaving")
        until = self._clock.ticks_ms() + self._patience_ms
        while (live := side.live(source.ticks()) & set(names)) and self._clock.ticks_ms() < until:
            self._clock.pause(PAUSE_SECONDS)
        homes = rendezvous(len(self._new))
        ready: dict[int, list[str]] = {}
        for name in sorted(set(names) - live):
            ready.setdefault(homes[int(name, 16)], []).append(name)
        for home, some in ready.items():
            ahead = self._places[home].ticks() - source.ticks()
            self._move_some(source, self._places[home], some, ahead)
        return live

    def _move_some(self, source: MovePlace, target: MovePlace, names: list[str], ticks_ahead: int) -> None:
        """Moves virtual shards together while they are small."""
        if len(names) > 1 and source.side.count_of(names) > ENTRIES_AT_ONCE:
            half = len(names) // 2
            self._move_some(source, target, names[:half], ticks_ahead)
            self._move_some(source, target, names[half:], ticks_ahead)
        else:
            self._move(source, target, names, ticks_ahead)

    def _move(self, source: MovePlace, target: MovePlace, names: list[str], ticks_ahead: int) -> None:
        """Moves virtual shards: copied, removed, opened, each committed before the next."""
        old, new = source.side, target.side
        try:
            for place in sorted((source, target), key=lambda place: place.index):
                place.side.begin()
            if set_phases(old, names, LEAVING, LEAVING) != len(names):
                raise ConfigError("another `oncegate reshard` is at work; wait until it has ended")
            entries = old.entries_of(names)
            set_phases(new, names, HERE, GONE, ARRIVED)
            new.remove(new.entries_of(names))  # what a move that was killed has left
            new.raise_numbers(old.highest())
            copy_entries(old, new, entries, ticks_ahead)
            if new.count_of(names) != len(entries):
                raise StoreCorrupt("a copy is not whole; the entries stay where they were")
            set_phases(new, names, ARRIVED, HERE)
            new.commit()
            self._crashpoints.hit("reshard.copied")
            old.remove(entries)
            set_phases(old, names, GONE, LEAVING)
            old.commit()
            self._crashpoints.hit("reshard.removed")
        except BaseException:
            new.undo()
            old.undo()
            raise
        set_phases(new, names, HERE, ARRIVED)
        self._moved, self._entries = self._moved + len(names), self._entries + len(entries)
        self._crashpoints.hit("reshard.moved")

    def _end(self, set_id: str) -> None:
        """All is in its place: from now on only the new list is taken."""
        if self._wanted():
            raise StoreCorrupt("something is not in its place after the move; run it again")
        for index, place in sorted(self._places.items()):
            self._crashpoints.hit("reshard.ending")
            write_stamp(place.side, Stamp(set_id, index, len(self._new)), self._clock.wall_ms())


def _check_lists(old: Sequence[Store], new: Sequence[Store]) -> None:
    """The longer list begins with the shorter one; one ledger is divided into others."""
    was, will = [store.address for store in old], [store.address for store in new]
    if not 2 <= len(new) <= SHARDS_MAX:
        raise BadUrl(f"a sharded ledger has 2 to {SHARDS_MAX} shards, not {len(new)}")
    if len({store.capabilities.name for store in (*old, *new)}) > 1:
        raise ConfigError("keys are moved between databases of one kind only")
    shorter = min(len(was), len(will))
    if len(was) == 1:
        if was[0] in will:
            raise ConfigError("a ledger is divided into other, empty databases; name those only")
    elif was[:shorter] != will[:shorter] or was == will:
        raise ConfigError(
            "shards are added or removed at the end of the list only; the others stay as they are"
        )
