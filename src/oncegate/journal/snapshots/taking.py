"""Taking a snapshot: parts first, the manifest last, then the line in the ledger's timeline.

What a crash leaves is no snapshot: without a manifest nothing counts, and a manifest that was stored just
before the crash is adopted by the next run. Must never write a manifest over data that was not read whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from oncegate.clock import Clock, utc_text
from oncegate.crashpoints import CrashPoints
from oncegate.errors import SnapshotError, SnapshotFork
from oncegate.gate.gate import GateEngine
from oncegate.journal.keys import Signer, Verifier
from oncegate.journal.snapshots.archive import Archive, StoredManifest, digest_of, packed, part_name
from oncegate.journal.snapshots.beliefs import LEDGER, Belief
from oncegate.journal.snapshots.ledger_belief import config_hash, journal_head, ledger_objects
from oncegate.journal.snapshots.manifest import BeliefEntry, Manifest, PartEntry, hash_of, manifest_name
from oncegate.journal.snapshots.spool import Spool
from oncegate.journal.snapshots.suspicion import SnapshotFacts, Suspicion, suspicions
from oncegate.journal.snapshots.timeline import SnapshotTimeline, change_timeline, read_timeline
from oncegate.journal.snapshots.vault import Vault

EVERY: Final = timedelta(minutes=15)
EARLY: Final = 0.7  # of the interval: another worker's snapshot within that is enough


class SnapshotTaken(Struct, frozen=True):
    """What one run did: the snapshot that is the last now, and what looks wrong in it."""

    number: int
    hash: str
    is_new: bool
    counts: dict[str, int] = {}
    parts_written: int = 0
    suspicions: tuple[Suspicion, ...] = ()


class _Read(NamedTuple):
    mark: str
    beliefs: dict[str, BeliefEntry]
    written: int
    cause: str


class SnapshotTaker:
    """Takes snapshots of one gate's beliefs into one vault."""

    def __init__(
        self,
        engine: GateEngine,
        vault: Vault,
        signers: Sequence[Signer],
        beliefs: Sequence[Belief],
        *,
        every: timedelta = EVERY,
        known: Sequence[Verifier] = (),
    ) -> None:
        self._engine, self._vault, self._signers, self._beliefs = engine, vault, signers, beliefs
        self._is_checked = False
        self._every_ms = every // timedelta(milliseconds=1)
        self.archive = Archive(vault, [*(signer.verifier for signer in signers), *known])

    @property
    def _clock(self) -> Clock:
        return self._engine.clock

    @property
    def _crashpoints(self) -> CrashPoints:
        return self._engine.crashpoints

    async def run_once(self, _stopping: object = None) -> SnapshotTaken:
        """Takes a snapshot if one is due; a failure is written down before it is raised."""
        self._engine.store.connect().close()  # a first program may have no ledger yet
        with self._engine.store.look() as session:
            known, now = read_timeline(session), session.now_ticks()
        if known.number and known.failure is None and now - known.ticks < self._every_ms * EARLY:
            return SnapshotTaken(known.number, known.hash, False)
        return await self.take()

    async def take(self, cause: str = "") -> SnapshotTaken:
        """Takes a snapshot now; `cause` says what for."""
        try:
            return await self._take(cause)
        except Exception as error:
            text = str(error) if isinstance(error, SnapshotError) else f"{type(error).__name__}: {error}"
            values = {"failure": text[:500], "failed_at_ms": self._clock.wall_ms()}
            note = f"no snapshot: {text}" if isinstance(error, SnapshotFork) else ""
            await asyncio.to_thread(self._note, None, note, **values)
            raise

    async def _take(self, cause: str) -> SnapshotTaken:
        before = await asyncio.to_thread(self._last)
        with self._engine.store.look() as session:
            mark = session.mutation_mark()  # before anything is read: what commits later is behind it
        beliefs: dict[str, BeliefEntry] = {}
        written = 0
        for belief in self._beliefs:
            with Spool() as spool:
                async for step in belief.steps():
                    spool.add(step)
                entry, new = await asyncio.to_thread(self._store, belief.name, spool, before)
            beliefs[belief.name], written = entry, written + new
        with Spool() as spool:
            await asyncio.to_thread(self._spool_ledger, spool)
            beliefs[LEDGER], new = await asyncio.to_thread(self._store, LEDGER, spool, before)
        read = _Read(mark, beliefs, written + new, cause)
        return await asyncio.to_thread(self._seal, before, read)

    def _spool_ledger(self, spool: Spool) -> None:
        with self._engine.store.look() as session:
            for step in ledger_objects(session, self._engine.surfaces):
                spool.add(step)

    def _store(self, name: str, spool: Spool, before: StoredManifest | None) -> tuple[BeliefEntry, int]:
        """Stores the parts that the last snapshot has not, and the list of all."""
        spool.check(name)
        old = None if before is None else before.manifest.beliefs.get(name)
        known = {} if old is None else {part.digest: part for part in self.archive.parts(old)}
        listed, written = [], 0
        for part in spool.parts():
            digest = part.digest
            until_day = known[digest].until_day if digest in known else 0
            if digest not in known:
                written += self._vault.put(part_name(digest), packed(part.body))
                self._crashpoints.hit("snapshot.part.after")
            kept = self._vault.keep_on(part_name(digest), until_day)
            listed.append(PartEntry(part.place, part.count, digest, kept))
        index = msgspec.json.encode(listed)
        name_of_index = sha256(index).hexdigest()
        if old is None or old.index != name_of_index:
            self._vault.put(part_name(name_of_index), packed(index))
        same = spool.content_duplicates()
        return BeliefEntry(spool.count, same, spool.bits, digest_of(listed), name_of_index), written

    def _seal(self, before: StoredManifest | None, read: _Read) -> SnapshotTaken:
        wall_ms = self._clock.wall_ms()
        last = None if before is None else before.manifest
        manifest = Manifest(
            number=1 if last is None else last.number + 1,
            previous="" if before is None else before.hash,
            taken_at=utc_text(wall_ms),
            wall_ms=wall_ms,
            ticks_ms=self._clock.ticks_ms(),
            clock_back_ms=0 if last is None else max(0, last.wall_ms - wall_ms),
            software=f"oncegate {version('oncegate')}",
            ledger=self._engine.store.address,
            ledger_id=self._note(None, "").ledger_id,
            mark=read.mark,
            config=config_hash(self._engine.surfaces),
            beliefs=read.beliefs,
            head=self._head(),
            cause=read.cause,
        )
        stored = manifest.signed(self._signers)
        self._crashpoints.hit("snapshot.manifest.before")
        try:
            self._vault.put(manifest.name, stored)
        except SnapshotFork:
            adopted = self._adopt(before)  # another worker was faster
            if adopted is None:
                raise
            return SnapshotTaken(adopted.manifest.number, adopted.hash, False)
        self._crashpoints.hit("snapshot.manifest.after")
        return self._noted(StoredManifest(manifest, hash_of(stored)), read.written)

    def _head(self) -> str | None:
        with self._engine.store.look() as session:
            return journal_head(session)

    def _noted(self, found: StoredManifest, written: int) -> SnapshotTaken:
        facts = SnapshotFacts.of(found.manifest, found.hash)
        counts = {name: one.count for name, one in found.manifest.beliefs.items()}
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if name != LEDGER)
        timeline = self._note(facts, f"snapshot {facts.number}, {facts.hash[:16]}: {told or 'no beliefs'}")
        wrong = tuple(one for one in suspicions(timeline.items) if one.number == facts.number)
        return SnapshotTaken(facts.number, found.hash, True, counts, written, wrong)

    def _note(self, facts: SnapshotFacts | None, note: str, **values: object) -> SnapshotTimeline:
        place = {"vault": self._vault.address, "promise": self._vault.promise, "every_ms": self._every_ms}
        change = partial(change_timeline, self._engine.store, self._clock)
        return change(facts, note, **place, **values)

    def _last(self) -> StoredManifest | None:
        """The last snapshot, as both the ledger and the vault know it; raises SnapshotFork otherwise."""
        self._engine.store.connect().close()  # a first program may have no ledger yet
        if not self._is_checked:
            self._vault.check()
            self._is_checked = True
        with self._engine.store.look() as session:
            known = read_timeline(session)
        found = None
        if known.number and known.vault == self._vault.address:
            found = self.archive.manifest(known.number)
            if found.hash != known.hash:
                raise SnapshotFork(
                    f"snapshot {known.number} in {self._vault.address} is not the one this ledger knows:"
                    " it was exchanged, or another ledger writes there"
                )
        while (further := self._adopt(found)) is not None:
            found = further
        return found

    def _adopt(self, before: StoredManifest | None) -> StoredManifest | None:
        """The snapshot after this one, stored by a process that died or by another worker; None: none."""
        number = 1 if before is None else before.manifest.number + 1
        if not self._vault.has(manifest_name(number)):
            return None
        found = self.archive.manifest(number)
        if found.manifest.previous != ("" if before is None else before.hash):
            raise SnapshotFork(f"snapshot {number} in {self._vault.address} follows on another history")
        with self._engine.store.look() as session:
            own = read_timeline(session).ledger_id
        if found.manifest.ledger_id != own:
            raise SnapshotFork(
                f"snapshot {number} in {self._vault.address} is of {found.manifest.ledger}; give each"
                " ledger its own place"
            )
        self._noted(found, 0)
        return found
