"""One ledger: its sessions, what it promises, and users' transactions that join it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgspec import Struct

from oncegate.store.attempts import Attempts
from oncegate.store.browsing import Browsing
from oncegate.store.census import Census
from oncegate.store.claims import Claims, Reservation, Reserved, Settlement
from oncegate.store.contents import Contents
from oncegate.store.facets import Capabilities
from oncegate.store.feed import EventToPublish, FeedFacet, Published
from oncegate.store.incarnations import Incarnations
from oncegate.store.lane_desk import LaneDesk
from oncegate.store.lanes import Lanes, Outgoing, Placed
from oncegate.store.log import Log
from oncegate.store.mutations import Mutations
from oncegate.store.notices import Notices
from oncegate.store.people import People
from oncegate.store.positions import Positions
from oncegate.store.pruning import Pruning
from oncegate.store.registry import Document, Registry
from oncegate.store.replays import Replays
from oncegate.store.resources import Resources
from oncegate.store.sealing import Sealing
from oncegate.store.seen import SeenByAll
from oncegate.store.tallies import Tallies
from oncegate.store.traces import Traces


class ClaimSession(Claims, Protocol):
    """One connection to a ledger, used by one thread at a time: the least that a store must have."""

    def unit(
        self, *, wait: bool = True, single: bool = False, patient: bool = True
    ) -> AbstractContextManager[None]:
        """One transaction: commits on leaving, rolls back if the block raises.

        All other calls are made inside one. `single` announces exactly one call of Claims, which may then
        be a statement that commits by itself. Without `wait`, raises StoreBusy at once when another process
        is writing. Without `patient`, a row that another transaction holds is waited for a moment only,
        and then StoreBusy is raised; where there is one writer no row is held. Raises StoreUnavailable if
        it could not begin or certainly did not commit, StoreUnknown if the commit may have happened.

        Where units are per call (`Units.PER_CALL`) it holds nothing together: each item of each call is
        atomic and has committed when the call returns. A call that fails when some of its items may have
        committed raises StoreUnknown, and each item is read back.
        """

    def now_ticks(self) -> int:
        """The ledger's own time in milliseconds."""

    def settle_doubt(self) -> None:
        """Writes something harmless, so that an earlier doubtful commit either shows now or never."""

    def close(self) -> None:
        """Gives the connection back; never raises."""


class InteractiveUnits(Protocol):
    """What only a store has whose units are transactions of many calls (`Units.INTERACTIVE`)."""

    def execute(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Runs a user's statement inside the open unit and returns its rows."""

    def serialise(self, names: Sequence[str]) -> None:
        """Lets no other session go past this call with one of these names until the open unit ends.

        What is read after it and what is written in the unit are then one step among all who ask so: for
        bounds that are counted. Where there is one writer, there is nothing to do.
        """

    def was_committed(self, mark: str) -> bool:
        """Tells whether a user's transaction is known to be committed, with or without what we put into it.

        `mark` is what `Joined.mark` gave. False also where that is unknown.
        """


class LanesFacet(Lanes, LaneDesk, Replays, Attempts, Positions, Protocol):
    """Ordered work, and what operators do to it (`Facet.LANES`)."""


class OpenEntriesFacet(Census, People, Protocol):
    """What is not final: lists, decisions and recovery (`Facet.OPEN_ENTRIES`)."""


class ReviewFacet(Log, Sealing, Registry, Pruning, Contents, Resources, Mutations, Browsing, Protocol):
    """Log, documents, retention and all entries, for people and the worker (`Facet.REVIEW`)."""


class StatsFacet(Tallies, SeenByAll, Notices, Traces, Protocol):
    """Observations: no decision about a key depends on them (`Facet.STATS`)."""


class Session(
    ClaimSession,
    InteractiveUnits,
    OpenEntriesFacet,
    LanesFacet,
    FeedFacet,
    ReviewFacet,
    StatsFacet,
    Protocol,
):
    """A session with every facet and interactive units: what SQLite and PostgreSQL have.

    Code that has asked `require` for a facet uses a session as this type. Of a store that does not declare
    a facet, the calls of that facet do not exist.
    """


class Joined(Protocol):
    """A user's own open transaction on the ledger's database: written into, never ended.

    Where `is_async`, the calls are awaited on the event loop of the user's connection; otherwise they are
    made on the user's own thread.
    """

    @property
    def is_async(self) -> bool:
        """Whether the calls give awaitables."""

    @property
    def mark(self) -> str | None:
        """What names the transaction to `was_committed`; None before a settlement, or if nothing can."""

    def reserve_one(self, reservation: Reservation, /) -> Reserved | Awaitable[Reserved]:
        """Reserves a key; another transaction with the same key is waited for."""

    def settle_one(self, settlement: Settlement, /) -> bool | Awaitable[bool]:
        """Ends a claim whose fence is still right; False changes nothing."""

    def publish_one(self, publication: EventToPublish, /) -> Published | Awaitable[Published]:
        """Publishes an event; another transaction that publishes under its key is waited for."""

    def enqueue_one(self, event: Outgoing, /) -> Placed | Awaitable[Placed]:
        """Puts an event at the end of its lane; another transaction that adds to the lane is waited for."""

    def documents(self, kind: str, /) -> list[Document] | Awaitable[list[Document]]:
        """Reads all documents of a kind, by name, as the transaction sees them now."""

    def is_open(self) -> bool:
        """Tells whether the user has not ended their transaction yet; never raises."""


class Finding(Struct, frozen=True):
    """One line of a store's own examination; one that is ok but has a next step is a warning."""

    ok: bool
    what: str
    value: str
    next_step: str = ""


class Migration(Struct, frozen=True):
    """One numbered change of the schema; `record` is the statement that says it was applied."""

    number: int
    name: str
    sql: str
    record: str

    @property
    def script(self) -> str:
        """The SQL that brings a ledger one migration further when it is run by hand."""
        head = f"-- migration {self.number}: {self.name}\nBEGIN;\n"
        return f"{head}{self.sql.rstrip()}\n{self.record}\nCOMMIT;"


class ClaimStore(Protocol):
    """One ledger: the least that a store must have. Its capabilities say what more it has."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store does and promises."""

    @property
    def incarnations(self) -> Incarnations:
        """Which incarnation of the ledger this process has seen; compared at every connection."""

    @property
    def address(self) -> str:
        """Where the ledger is, without secrets."""

    def connect(self) -> ClaimSession:
        """Opens a session for reading and writing; brings an empty ledger to the current schema."""

    def exists(self) -> bool:
        """Tells whether there is anything at the address; raises StoreUnavailable where nothing can be."""

    def look(self, *, again: bool = False) -> AbstractContextManager[ClaimSession]:
        """Opens the ledger for reading; creates and changes nothing.

        Where units are interactive, what is read is one consistent moment. `again` says that other looks
        will follow: the store may keep what it opened for them. Raises StoreUnavailable where there is no
        ledger, SchemaMismatch where it is not up to date.
        """

    def close(self) -> None:
        """Releases what is kept for further looks; the store can be used again."""

    def pending_migrations(self) -> list[Migration]:
        """Tells which migrations the ledger still needs, without changing anything."""

    def migrate(self) -> list[Migration]:
        """Applies and returns the pending migrations."""

    def examine(self) -> list[Finding]:
        """Looks at versions, durability and clock, for `oncegate doctor`, and rehearses a claim.

        Leaves nothing behind, waits for no writer, and does not write where the ledger is read-only.
        """


def ledgers_of(store: Store) -> list[Store]:
    """The complete ledgers behind a store: itself, or its shards. For what is done to each by itself."""
    return list(getattr(store, "shards", (store,)))


class Store(ClaimStore, Protocol):
    """A ledger with every facet and interactive units."""

    def connect(self) -> Session:
        """As in `ClaimStore`, with every facet."""

    def look(self, *, again: bool = False) -> AbstractContextManager[Session]:
        """As in `ClaimStore`, with every facet."""

    def knows(self, names: Sequence[str]) -> bool:
        """Tells whether everything is known that joining with these names takes; sends nothing."""

    def learn(self, names: Sequence[str]) -> None:
        """Makes the names known, durably and over a connection of its own."""

    def join(self, transaction: object) -> Joined:
        """Wraps a user's open transaction on the same database; raises UsageError if there is none.

        That it is the same database may be found out later, by the first call.
        """

    def make_room(self, now_ms: int) -> list[str]:
        """Prepares for what will arrive and returns the space of forgotten entries; says what it did.

        Never needed for anything to be right, and never waits long for others: what cannot be done now is
        done another time.
        """
