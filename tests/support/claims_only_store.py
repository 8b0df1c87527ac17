"""A store with claims only, as a hash table of keys would be one: what `oncegate.store` asks, and no more.

It keeps its rows in a simulated ledger. Everything is addressed by key, each item of a call commits by
itself, numbers of entries are made of keys, and no fence is a number of an entry. It keeps no events and
takes no business writes. `fail_next` makes a commit go wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.errors import StoreUnavailable, StoreUnknown
from oncegate.store import (
    CLAIM_KINDS,
    Attachment,
    AuditTrail,
    Capabilities,
    ClaimId,
    Durability,
    Entry,
    EntryDetail,
    Finding,
    Migration,
    Renewal,
    Reservation,
    Reserved,
    Settlement,
    StepRecords,
    Units,
    read_claim_note,
)
from oncegate.store.incarnations import Incarnations, Sight
from oncegate.testing.simulation import Ledger
from oncegate.testing.simulation.store import CommitFault, SimulatedSession, no_fault

T = TypeVar("T")
Fault = Callable[[], CommitFault]
A = TypeVar("A", Attachment, Renewal, Settlement, StepRecords)
FENCE_SHIFT: Final = 1 << 40  # no fence is the number of an entry


def number_of(key: bytes) -> int:
    """The number that people and logs know an entry by."""
    return int.from_bytes(key[:7]) + 1


class ClaimsOnlySession:
    """One connection. Has nothing but `ClaimSession`: whoever asks for more meets an AttributeError."""

    def __init__(self, ledger: Ledger, clock: Clock, store: ClaimsOnlyStore, fault: Fault) -> None:
        self._ledger, self._lock, self._trail = ledger, store.lock, store.trail
        self._rows = SimulatedSession(ledger, clock, fault)

    def unit(
        self, *, wait: bool = True, single: bool = False, patient: bool = True
    ) -> AbstractContextManager[None]:
        """Holds nothing together."""
        return nullcontext()

    def _each(self, items: Sequence[Any], do: Callable[[Any], T]) -> list[T]:
        """Commits each item by itself; once one may be there, a failure leaves all of the call in doubt."""
        answers: list[T] = []
        for item in items:
            try:
                with self._lock, self._rows.unit():
                    answers.append(do(item))
            except StoreUnavailable as error:
                if answers:
                    raise StoreUnknown(f"{len(answers)} of {len(items)} were written: {error}") from error
                raise
        return answers

    def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
        """Each by one conditional write."""
        return self._each(wanted, lambda item: _shown(item.key, self._rows.reserve([item])[0]))

    def record(self, wanted: Sequence[Reservation], outcome: bytes) -> list[Reserved]:
        """Each by one conditional write that settles what is new."""
        return self._each(wanted, lambda item: _shown(item.key, self._rows.record([item], outcome)[0]))

    def renew(self, claims: Sequence[Renewal]) -> list[bool]:
        """Each by its key."""
        return self._each(claims, lambda item: self._rows.renew([self._inner(item)])[0])

    def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
        """Each by its key."""
        return self._each(wanted, lambda item: self._rows.progress([self._inner(item)])[0])

    def settle(self, settlements: Sequence[Settlement], *, last: bool = False) -> list[bool]:
        """Each by its key."""
        return self._each(settlements, lambda item: self._rows.settle([self._inner(item)])[0])

    def withdraw(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Each by its key."""
        return self._each(claims, lambda item: self._rows.withdraw([self._claim(item)])[0])

    def attach(self, attachments: Sequence[Attachment]) -> list[bool]:
        """Each by its key."""
        return self._each(attachments, lambda item: self._rows.attach([self._inner(item)])[0])

    def are_committed(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Looks."""
        return self._rows.are_committed([self._claim(item) for item in claims])

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads by key."""
        return [None if found is None else found.entry for found in self.details(keys)]

    def details(self, keys: Sequence[bytes]) -> list[EntryDetail | None]:
        """Reads by key."""
        with self._lock:
            return [found and _detail(found, self._trail) for found in self._rows.details(keys)]

    def now_ticks(self) -> int:
        """The ledger's own time."""
        return self._rows.now_ticks()

    def settle_doubt(self) -> None:
        """Nothing to do: what is not there by now never will be."""

    def close(self) -> None:
        """Has nothing open."""

    def _inner(self, item: A) -> A:
        claim = self._claim(ClaimId(item.entry_id, item.fence, item.token, item.key))
        return replace(item, entry_id=claim.entry_id, fence=claim.fence)

    def _claim(self, claim: ClaimId) -> ClaimId:
        """The claim as the rows know it; one that names another entry is nobody's."""
        number = self._ledger.tables.ids.get(claim.key, 0) if claim.entry_id == number_of(claim.key) else 0
        return claim._replace(entry_id=number, fence=claim.fence - FENCE_SHIFT)


def _shown(key: bytes, reserved: Reserved) -> Reserved:
    fence = reserved.fence + FENCE_SHIFT if reserved.decision.claims else 0
    return replace(reserved, entry_id=number_of(key), fence=fence)


def _detail(found: EntryDetail, trail: AuditTrail) -> EntryDetail:
    number, fence = number_of(found.entry.key), found.entry.fence + FENCE_SHIFT
    records = tuple(replace(one, entry_id=number, note=_note(one.note)) for one in found.records)
    has_past = any(record.kind in CLAIM_KINDS.values() for record in records)
    return replace(
        found,
        entry=replace(found.entry, entry_id=number, fence=fence),
        body=None,
        records=() if trail is AuditTrail.NONE else records,
        has_past=has_past,
    )


def _note(note: str | None) -> str | None:
    claim = read_claim_note(note)
    return note if claim is None else str(claim._replace(fence=claim.fence + FENCE_SHIFT))


class ClaimsOnlyStore:
    """One ledger with claims only."""

    def __init__(self, ledger: Ledger, clock: Clock, trail: AuditTrail = AuditTrail.PER_ENTRY) -> None:
        self._ledger, self._clock = ledger, clock
        self.lock, self.trail = RLock(), trail
        self._faults: list[CommitFault] = []
        self._incarnations = Incarnations()

    def fail_next(self, *faults: CommitFault) -> None:
        """Lets the next commits go wrong, in this order."""
        self._faults += faults

    def _fault(self) -> CommitFault:
        return self._faults.pop(0) if self._faults else no_fault()

    @property
    def capabilities(self) -> Capabilities:
        """Claims, each by itself, over a network."""
        return Capabilities(
            "claims-only",
            Durability.MEMORY,
            4,
            self.trail,
            business_writes=False,
            one_writer=False,
            is_local=False,
            units=Units.PER_CALL,
            keeps_bodies=False,
        )

    @property
    def incarnations(self) -> Incarnations:
        """Which incarnation was seen."""
        return self._incarnations

    @property
    def address(self) -> str:
        """Nowhere."""
        return "claims-only:"

    def connect(self) -> ClaimsOnlySession:
        """Opens a session."""
        self._ledger.exists = True
        session = ClaimsOnlySession(self._ledger, self._clock, self, self._fault)
        self._incarnations.check(Sight(self._ledger.identity, 0), lambda: session)
        return session

    def exists(self) -> bool:
        """Whether anybody has connected yet."""
        return self._ledger.exists

    @contextmanager
    def look(self, *, again: bool = False) -> Iterator[ClaimsOnlySession]:
        """Reads what is there."""
        if not self._ledger.exists:
            raise StoreUnavailable("there is no ledger yet")
        yield ClaimsOnlySession(self._ledger, self._clock, self, no_fault)

    def close(self) -> None:
        """Nothing is kept."""

    def pending_migrations(self) -> list[Migration]:
        """There is no schema."""
        return []

    def migrate(self) -> list[Migration]:
        """There is no schema."""
        self._ledger.exists = True
        return []

    def examine(self) -> list[Finding]:
        """Says what it is."""
        return [Finding(True, "ledger", "claims in memory")]
