"""What every part of the suite stands on: stores, sessions, requests, and a picture of the whole ledger."""

from __future__ import annotations

import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from oncegate.model.keys import derive_key
from oncegate.model.states import State
from oncegate.store import (
    AuditTrail,
    Capabilities,
    Entry,
    EntryDetail,
    EntryFilter,
    Facet,
    LogRecord,
    Renewal,
    Reservation,
    Reserved,
    Session,
    Settlement,
    Statement,
    StepRecord,
    StepRecords,
    Store,
)
from oncegate.testing.clock import ManualClock

LEASE_MS: Final = 20_000
ALL: Final = 10_000


def key_of(text: str, tenant: str = "") -> bytes:
    """The key of the event that `text` names."""
    return derive_key(tenant, "orders", "{id}", (text,)).digest


class StoreBench:
    """Makes stores and sessions for one test, and gives them back after it."""

    make_table_sql: ClassVar[str] = "CREATE TABLE conformance_booking (ref TEXT PRIMARY KEY)"
    insert_sql: ClassVar[str] = "INSERT INTO conformance_booking (ref) VALUES (?)"
    delete_drafts_sql: ClassVar[str] = "DELETE FROM conformance_booking WHERE ref LIKE 'draft%'"
    select_sql: ClassVar[str] = "SELECT ref FROM conformance_booking ORDER BY ref"

    keeps_final_bodies: ClassVar[bool] = False  # also without review

    clock: ManualClock
    _sessions: list[Session]
    _reader: Store | None
    _tokens: int
    _has_table: bool
    _keys: dict[bytes, None]

    def make_store(self, clock: ManualClock) -> Store:
        """Makes a store on this test's own ledger; every call in one test names the same ledger."""
        raise NotImplementedError("override make_store(clock)")

    def wait_for_readers(self) -> None:
        """Returns once every committed record can be read.

        Readers of the log and of contents never pass a transaction that may still commit. On a server
        they share with others, such a transaction may be a stranger's: override this to wait for its end.
        """

    def setup_method(self) -> None:
        self.clock = ManualClock()
        self._sessions = []
        self._reader = None
        self._tokens = 0
        self._has_table = False
        self._keys = {}

    def teardown_method(self) -> None:
        for session in self._sessions:
            session.close()
        if self._reader is not None:
            self._reader.close()

    def open(self, store: Store | None = None) -> Session:
        """Opens a session that is closed after the test."""
        session = (store or self.make_store(self.clock)).connect()
        self._sessions.append(session)
        return session

    @property
    def capabilities(self) -> Capabilities:
        """What the store under test declares."""
        return self.make_store(self.clock).capabilities

    @property
    def has_review(self) -> bool:
        """Whether the ledger can be listed; elsewhere the suite reads the keys that it has used."""
        return Facet.REVIEW in self.capabilities.facets

    def make_business_table(self, session: Session, *, required: bool = True) -> None:
        """Makes the table that business writes of the suite go to; skips where they are required."""
        if not self.capabilities.business_writes:
            if required:
                raise unittest.SkipTest("this store takes no business writes")
            return
        with session.unit():
            session.execute(self.make_table_sql, ())
        self._has_table = True

    def booking(self, ref: str) -> Statement:
        """A business write."""
        return (self.insert_sql, (ref,))

    def writes(self, ref: str) -> tuple[Statement, ...]:
        """A business write, where the test has a table for it."""
        return (self.booking(ref),) if self._has_table else ()

    def booked(self, *refs: str) -> list[str]:
        """What `writes` leave in the table."""
        return list(refs) if self._has_table else []

    def kept_body(self, body: bytes, *, is_final: bool = False) -> bytes | None:
        """An event as the store under test keeps it: for as long as it is listed."""
        if is_final:
            return body if self.has_review or self.keeps_final_bodies else None
        return body if Facet.OPEN_ENTRIES in self.capabilities.facets else None

    def records_of(self, found: EntryDetail) -> tuple[LogRecord, ...]:
        """An entry's records; what a test checks after asking for them is left out where there are none."""
        if self.capabilities.audit_trail is AuditTrail.NONE:
            raise unittest.SkipTest("this store has no audit trail")
        return found.records

    def reservation(self, text: str = "event", **changes: Any) -> Reservation:
        """A request for the key that `text` names, with a token of its own."""
        self._tokens += 1
        tenant = changes.get("tenant", "")
        wanted: dict[str, Any] = {
            "key": key_of(text, tenant),
            "tenant": tenant,
            "surface": "orders",
            "label": text,
            "fingerprint": b"content-of-event",
            "body": b'{"id":1}',
            "received_at_ms": self.clock.wall_ms(),
            "lease_ms": LEASE_MS,
            "attempts_max": 8,
            "token": self._tokens,
        }
        made = Reservation(**{**wanted, **changes})
        self._keys[made.key] = None
        return made

    def reserve(self, session: Session, text: str = "event", **changes: Any) -> Reserved:
        """Lets an event arrive, in a unit of its own."""
        with session.unit():
            return session.reserve([self.reservation(text, **changes)])[0]

    def settlement(self, claim: Reserved, state: State = State.COMMITTED, **changes: Any) -> Settlement:
        """The end of a claim."""
        wanted: dict[str, Any] = {"at_ms": self.clock.wall_ms(), "actor": "suite"}
        return Settlement(*claim.claim, state, **{**wanted, **changes})

    def settle(
        self, session: Session, claim: Reserved, state: State = State.COMMITTED, **changes: Any
    ) -> bool:
        """Ends a claim, in a unit of its own."""
        with session.unit():
            return session.settle([self.settlement(claim, state, **changes)])[0]

    def progress(
        self,
        session: Session,
        claim: Reserved,
        *steps: StepRecord,
        writes: tuple[Statement, ...] = (),
        probed: str | None = None,
    ) -> bool:
        """Records steps, in a unit of its own."""
        at_ms = self.clock.wall_ms()
        wanted = StepRecords(*claim.claim, steps, at_ms, writes, probed, "suite")
        with session.unit():
            return session.progress([wanted])[0]

    def renew(self, session: Session, claim: Reserved, lease_ms: int = LEASE_MS) -> bool:
        """Renews a lease, in a unit of its own."""
        with session.unit():
            return session.renew([Renewal(*claim.claim, lease_ms)])[0]

    def let_lapse(self) -> None:
        """Lets more time pass than any lease of the suite lasts."""
        self.clock.advance(LEASE_MS / 1000 + 1)

    @contextmanager
    def looking(self) -> Iterator[Session]:
        """One moment of the ledger, read through a store that is this test's own and only reads."""
        if self._reader is None:
            self._reader = self.make_store(self.clock)
        with self._reader.look(again=True) as session:
            yield session

    def find(self, entry_id: int) -> EntryDetail | None:
        """Reads an entry that may not be there."""
        if not self.has_review:
            return next((one for one in self.details() if one.entry.entry_id == entry_id), None)
        with self.looking() as session:
            return session.detail(entry_id)

    def details(self) -> list[EntryDetail]:
        """Reads everything under the keys that this test has used."""
        with self.looking() as session:
            return [found for found in session.details(list(self._keys)) if found is not None]

    def detail(self, entry_id: int) -> EntryDetail:
        """Reads an entry that must be there."""
        found = self.find(entry_id)
        assert found is not None
        return found

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads entries by key."""
        with self.looking() as session:
            return session.read(keys)

    def entries(self, wanted: EntryFilter, before_id: int | None, limit: int) -> list[Entry]:
        """Lists entries."""
        with self.looking() as session:
            return session.entries(wanted, before_id, limit)

    def counts(self) -> dict[State, int]:
        """Counts entries by state, leaving out what there is none of."""
        if not self.has_review:
            return dict(Counter(found.entry.state for found in self.details()))
        with self.looking() as session:
            return {state: count for state, count in session.counts().items() if count}

    def stranded(self, limit: int) -> list[EntryDetail]:
        """Finds what a crash or a passing failure left."""
        if Facet.OPEN_ENTRIES not in self.capabilities.facets:
            now = self.now()
            return [found for found in self.details() if _is_stranded(found.entry, now)][:limit]
        with self.looking() as session:
            return session.stranded(limit)

    def read_log(self, after: int, limit: int) -> list[LogRecord]:
        """Reads a page of the log, complete up to what is committed."""
        self.wait_for_readers()
        with self.looking() as session:
            return session.read_log(after, limit)

    def log(self) -> list[LogRecord]:
        """Reads the whole log; where records are kept by entry, those of all entries in their order."""
        if self.capabilities.audit_trail is AuditTrail.LOG:
            return self.read_log(0, ALL)
        if self.capabilities.audit_trail is AuditTrail.NONE:
            raise unittest.SkipTest("this store has no audit trail")
        records = [record for found in self.details() for record in found.records]
        return sorted(records, key=lambda record: record.position)

    def now(self) -> int:
        """The ledger's own time."""
        with self.looking() as session:
            return session.now_ticks()

    def bookings(self, session: Session) -> list[str]:
        """Reads the business table."""
        if not self._has_table:
            return []
        with session.unit():
            return [str(ref) for (ref,) in session.execute(self.select_sql, ())]

    def picture(self, session: Session) -> dict[str, Any]:
        """Everything the ledger holds, to be compared before and after."""
        if not self.has_review:
            return {"entries": self.details()}
        bookings = self.bookings(session)
        self.wait_for_readers()
        with self.looking() as reader:
            entries = reader.entries(EntryFilter(), None, ALL)
            return {
                "entries": [reader.detail(entry.entry_id) for entry in entries],
                "log": reader.read_log(0, ALL),
                "counts": reader.counts(),
                "bookings": bookings,
            }


def _is_stranded(entry: Entry, now: int) -> bool:
    is_open = entry.state in (State.IN_FLIGHT, State.RETRYABLE)
    return is_open and (entry.lease_until_ticks or 0) <= now


@contextmanager
def refused(kind: type[BaseException]) -> Iterator[None]:
    """Expects that the block raises an error of this kind."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


@contextmanager
def unchanged(bench: StoreBench, session: Session) -> Iterator[None]:
    """Expects that the block changes nothing at all in the ledger."""
    before = bench.picture(session)
    yield
    assert bench.picture(session) == before
