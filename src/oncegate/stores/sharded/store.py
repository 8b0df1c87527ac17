"""The store over several ledgers: opens shards when they are needed, and checks that each is the same one.

Every shard is stamped with the set it belongs to, its place and their number. A list of shards that differs
from the stamps is refused: a key that is looked for in another place would run again. Must never stamp a
ledger that has entries.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final, cast

from msgspec.structs import replace

from oncegate.clock import SystemClock
from oncegate.errors import (
    BadUrl,
    OncegateError,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from oncegate.store import (
    AuditTrail,
    Capabilities,
    ClaimSession,
    DocumentChange,
    EntryFilter,
    Facet,
    Finding,
    Migration,
    Session,
    Store,
)
from oncegate.store.incarnations import IncarnationChange, Rememberer
from oncegate.stores.sharded.session import OneShardSession, ShardedSession
from oncegate.stores.sharded.shard_map import SHARDS_MAX, VIRTUALS, Homes, Stamp, rendezvous, virtual_of
from oncegate.stores.shared.homes import HERE, HOME, LEAVING, STAMP

Compare = Callable[[int, Stamp | None], None]  # raises SchemaMismatch for a shard that is not the named one

_FIXED: Final = "name the shards as they were; `oncegate reshard` adds and removes some"


class ShardedStore:
    """Several complete ledgers of one kind, in a fixed order."""

    def __init__(self, shards: Sequence[Store]) -> None:
        if not 1 < len(shards) <= SHARDS_MAX:
            raise BadUrl(f"a sharded ledger has 2 to {SHARDS_MAX} shards, not {len(shards)}")
        kinds = {shard.capabilities.name for shard in shards}
        if len(kinds) > 1 or not shards[0].capabilities.business_writes:
            raise BadUrl(f"shards are all PostgreSQL or all SQLite, not {', '.join(sorted(kinds))}")
        self._shards = list(shards)
        self._lock = threading.Lock()
        self._set_id: str | None = None
        self._is_begun = False
        self._checked: set[int] = set()
        self._away: set[int] = set()  # shards whose stamps could not be compared
        self.homes = Homes(len(shards), self._read_homes)
        self.incarnations = ShardIncarnations(self._shards, self._recognise)

    @property
    def capabilities(self) -> Capabilities:
        """What one shard has of claims and open entries; a unit is one transaction a shard."""
        one = self._shards[0].capabilities
        return replace(
            one,
            name="shards",
            audit_trail=AuditTrail.PER_ENTRY,
            writers_max=one.writers_max if one.one_writer else one.writers_max * len(self._shards),
            is_local=False,
            gives_way=False,
            facets=frozenset({Facet.CLAIMS, Facet.OPEN_ENTRIES}),
        )

    @property
    def address(self) -> str:
        """All shards, without secrets."""
        return "shards: " + " ".join(shard.address for shard in self._shards)

    def connect(self) -> ShardedSession:
        """Opens a session. All shards are checked by the first one; later ones connect to what they use."""
        if not self._is_begun:
            self._begin()
        return ShardedSession(self.homes, self._open)

    def place_of(self, key: bytes) -> int | None:
        """Which shard a key belongs to: batches are made by it."""
        return self.homes.places[virtual_of(key)]

    @property
    def shards(self) -> list[Store]:
        """The ledgers, for what is done to each by itself."""
        return list(self._shards)

    def _begin(self) -> None:
        """Checks every shard that can be reached; one of them must be there."""
        away: list[StoreUnavailable] = []
        for shard in range(len(self._shards)):
            try:
                self._check(shard)
            except StoreUnavailable as error:
                away.append(error)
        if len(away) == len(self._shards):
            raise away[0]
        self.homes.read()
        self._is_begun = True

    def _open(self, shard: int) -> Session:
        if shard not in self._checked:
            self._check(shard)
        return self._shards[shard].connect()

    def _check(self, shard: int) -> None:
        """Compares a shard's stamp, once in a process; stamps an empty ledger."""
        with self._lock:
            if shard in self._checked:
                return
            if self._set_id is None:
                self._away.clear()
                self._set_id = self._learn_set()
            self._compare(shard, self._stamp(shard, Stamp(self._set_id, shard, len(self._shards))))
            self._checked.add(shard)

    def _compare(self, shard: int, found: Stamp | None) -> None:
        """Raises SchemaMismatch for a shard that is not the one that is named here."""
        where, count = self._shards[shard].address, len(self._shards)
        if found is None:
            raise SchemaMismatch(f"{where} is no shard yet; run oncegate migrate for all shards")
        self._set_id = self._set_id or found.set_id
        if found.set_id != self._set_id:
            raise SchemaMismatch(f"{where} belongs to another set of shards; {_FIXED}")
        if found.index != shard or count not in {found.count, found.to or found.count}:
            was, now = f"shard {found.index} of {found.count}", f"shard {shard} of {count}"
            raise SchemaMismatch(f"{where} is {was}, and is named as {now}; {_FIXED}")

    def _recognise(self, shard: int, found: Stamp | None) -> None:
        """Compares a shard over a new connection; it may be without a stamp until it was checked."""
        if found is not None or shard in self._checked:
            self._compare(shard, found)

    def _read_homes(self, known: Homes) -> list[int | None] | None:
        """Where each virtual shard is while `oncegate reshard` moves keys; None where nothing is moved.

        A database that is away keeps what it is known to have: it decides itself what it still takes.
        """
        places: list[int | None] = [None] * VIRTUALS
        is_moving, away = False, set()
        for place, shard in enumerate(self._shards):
            try:
                with shard.look(again=True) as session:
                    found = stamp_in(session)
                    self._compare(place, found)
                    is_moving |= bool(found and found.to)
                    for virtual in _held(session, found or Stamp("", place, 0)):
                        places[virtual] = place
            except StoreUnavailable:
                away.add(place)
        if not is_moving:
            return None
        before = enumerate(known.places)
        for virtual, place in [(virtual, place) for virtual, place in before if place in away]:
            places[virtual] = place if places[virtual] is None else places[virtual]
        return places

    def _learn_set(self) -> str:
        """Compares the stamps of all shards that can be reached; makes a set where all are new."""
        for place, shard in enumerate(self._shards):
            try:
                with shard.look() as session:
                    found = stamp_in(session)
            except SchemaMismatch:
                continue  # not a ledger yet
            except StoreUnavailable:
                if shard.exists():
                    self._away.add(place)
                continue
            if found is not None:
                self._compare(place, found)
        # Of several processes that begin at once, the first shard names the set.
        return self._set_id or self._stamp(0, Stamp(secrets.token_hex(8), 0, len(self._shards))).set_id

    def _stamp(self, shard: int, wanted: Stamp) -> Stamp:
        """Reads a shard's stamp; writes it where there is none and no entry either."""
        store = self._shards[shard]
        with closing(store.connect()) as session:
            with session.unit():
                found = stamp_in(session)
                if found is not None:
                    return found
                if self._away:
                    raise StoreUnavailable(f"{store.address} is new, and another shard is away; try again")
                if session.entries(EntryFilter(), None, 1):
                    raise SchemaMismatch(
                        f"{store.address} has entries of a ledger of its own: as a shard it would not know"
                        " the keys that belong elsewhere. Name empty databases"
                    )
                body, now_ms = str(wanted).encode(), SystemClock().wall_ms()
                note = f"shard {wanted.index} of {wanted.count}"
                session.change_document(
                    DocumentChange(*STAMP, 0, body, now_ms, "oncegate", note, recorded_as=None)
                )
            with session.unit():
                return stamp_in(session) or wanted

    def exists(self) -> bool:
        """Tells whether there is a ledger at every address."""
        return all(shard.exists() for shard in self._shards)

    @contextmanager
    def look(self, *, again: bool = False) -> Iterator[ShardedSession]:
        """Opens shards for reading when they are used; each shows a moment of its own."""
        for shard in self._shards if not self._is_begun else ():
            if not _may_exist(shard):
                raise StoreUnavailable(f"there is no ledger at {shard.address}")
        with ExitStack() as opened:

            def reader(shard: int) -> Session:
                session = opened.enter_context(self._shards[shard].look(again=again))
                self._compare(shard, stamp_in(session))
                return session

            self.homes.renew()
            yield ShardedSession(self.homes, reader)

    def close(self) -> None:
        """Closes what shards keep for further looks."""
        for shard in self._shards:
            shard.close()

    def pending_migrations(self) -> list[Migration]:
        """What any shard still needs."""
        found = {one.number: one for shard in self._shards for one in shard.pending_migrations()}
        return [found[number] for number in sorted(found)]

    def migrate(self) -> list[Migration]:
        """Brings every shard up to date, and stamps new ones."""
        applied = {one.number: one for shard in self._shards for one in shard.migrate()}
        for shard in range(len(self._shards)):
            self._check(shard)
        return [applied[number] for number in sorted(applied)]

    def examine(self) -> list[Finding]:
        """What each shard says of itself, with its place."""
        found = [Finding(True, "shards", f"{len(self._shards)}, each with the keys of its own")]
        for place, shard in enumerate(self._shards):
            try:
                self._check(place)
                found += [replace(one, value=f"shard {place}: {one.value}") for one in shard.examine()]
            except StoreError as error:
                found.append(Finding(False, "shard", f"{place}: {shard.address}", str(error)))
        return found

    def knows(self, names: Sequence[str]) -> bool:
        """Nothing joins a sharded ledger."""
        return True

    def learn(self, names: Sequence[str]) -> None:
        """Nothing joins a sharded ledger."""

    def join(self, transaction: object) -> Any:
        """Refuses: which database a transaction must be on depends on the event's key."""
        raise UsageError(
            "a sharded ledger joins no transaction of yours: use once.commit(writes=…), which runs in the"
            " database of the event's shard"
        )

    def make_room(self, now_ms: int) -> list[str]:
        """On every shard."""
        return [line for shard in self._shards for line in shard.make_room(now_ms)]


class ShardIncarnations:
    """The incarnations of all shards: who remembers hears of each, with the keys of that shard only."""

    def __init__(self, shards: Sequence[Store], compare: Compare) -> None:
        self._shards, self._compare = shards, compare
        self._attached: list[tuple[Rememberer, list[ShardRememberer]]] = []

    def attach(self, rememberer: Rememberer) -> None:
        """Tells it from now on when a shard has gone back."""
        count = len(self._shards)
        each = [ShardRememberer(rememberer, place, count, self._compare) for place in range(count)]
        for shard, one in zip(self._shards, each, strict=True):
            shard.incarnations.attach(one)
        self._attached.append((rememberer, each))

    def detach(self, rememberer: Rememberer) -> None:
        """Tells it no more."""
        for known, each in [pair for pair in self._attached if pair[0] is rememberer]:
            self._attached.remove((known, each))
            for shard, one in zip(self._shards, each, strict=True):
                shard.incarnations.detach(one)


class ShardRememberer:
    """Passes on what happened to one shard."""

    def __init__(self, behind: Rememberer, shard: int, count: int, compare: Compare) -> None:
        self._behind, self._shard, self._count, self._compare = behind, shard, count, compare

    def forget(self) -> None:
        """Drops what was remembered of the ledger."""
        self._behind.forget()

    def misses(self, session: ClaimSession) -> bool:
        """Whether this shard has lost something."""
        return self._behind.misses(self._wrapped(session))

    def restore(self, session: ClaimSession, change: IncarnationChange) -> None:
        """Compares memory with this shard."""
        self._behind.restore(self._wrapped(session), change)

    def _wrapped(self, session: ClaimSession) -> OneShardSession:
        """Asks this shard alone which keys it has: another one may be silent."""
        asked = cast("Session", session)
        with asked.unit():
            found = stamp_in(asked)
            self._compare(self._shard, found)
            held = set(_held(asked, found or Stamp("", self._shard, self._count)))
        places = [self._shard if virtual in held else None for virtual in range(VIRTUALS)]
        homes = Homes(self._count, lambda known: places)
        homes.read()
        return OneShardSession(homes, self._shard, session)


def _may_exist(shard: Store) -> bool:
    """Whether there is a ledger, or a server that cannot be reached and may have one."""
    try:
        return shard.exists()
    except StoreUnavailable:
        return True


def _held(session: Session, stamp: Stamp) -> Iterator[int]:
    """The virtual shards that a database has."""
    if not stamp.to:
        yield from (
            virtual for virtual, place in enumerate(rendezvous(stamp.count)) if place == stamp.index
        )
        return
    for found in session.documents(HOME):
        if found.body in (HERE, LEAVING):
            yield int(found.name, 16)


def stamp_in(session: Session) -> Stamp | None:
    """The stamp of a ledger, if it is a shard."""
    found = session.document(*STAMP)
    return None if found is None else Stamp.read(found.body.decode())


def refuse_shard(address: str, session: Session) -> None:
    """Raises SchemaMismatch where a ledger is a shard: alone it would not know the keys of the others."""
    found = stamp_in(session)
    if found is not None and found.index < 0:
        raise SchemaMismatch(f"{address} was divided into {found.to or found.count} shards; name those")
    if found is not None:
        raise SchemaMismatch(
            f"{address} is shard {found.index} of {found.count} of a sharded ledger; name all of its"
            " shards: shards: ADDRESS ADDRESS"
        )


def open_shards(make: Callable[[], Sequence[Store]]) -> ShardedStore:
    """Makes the store behind `shards: ADDRESS ADDRESS …`."""
    try:
        return ShardedStore(make())
    except OncegateError as error:
        raise type(error)(f"shards: {error}") from None
