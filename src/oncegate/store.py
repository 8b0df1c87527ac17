"""The store contract: what a ledger must do, in five small protocols, and the values that cross it.

A store is written once, blocking and set-based, and knows nothing of tasks, threads or batching: the
group commit (`groupcommit.py`) calls it from one thread at a time per session and does the rest.

    Store     one ledger: opens sessions, migrates, checks durability, joins a user's transaction
    Session   one connection; `unit()` is one durable commit. It implements these protocols:
      Claims    reserve, renew, record steps, settle, attach, read
      Log       read what was recorded, in commit order
      Census    lists and counts for people and caretakers
      Pruning   forgets what is final and older than its retention
      (Lanes    ordered outbound work; comes with the sender)

Three results. A call returns (done), raises StoreUnavailable or StoreRejected (not done: nothing was
changed), or raises StoreUnknown (it may have taken effect). After StoreUnknown the group commit opens a
new session and reads back each operation by its own token; no effect starts before that is answered.

Time. `Session.now_ticks()` is the ledger's own time in milliseconds: it does not follow wall-clock steps
and never runs backwards, except that a restart of the machine may take it back to the latest recorded
lease. Leases are kept in it. Wall times (`*_at_ms`) are for people.

`oncegate.testing.conformance` checks all of this on any store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager
from enum import Enum, IntEnum
from typing import Any, Protocol

from msgspec import Struct

from oncegate.model.retention import Sighting
from oncegate.model.states import Decision, State

Statement = tuple[str, Sequence[Any]]


class StepState(IntEnum):
    """How far a named step has come. The numbers are stored; never renumber."""

    STARTED = 1
    DONE = 2
    NOT_APPLIED = 3


class StepRecord(Struct, frozen=True, gc=False):
    """A step of a handler that has been started or finished."""

    name: str
    state: StepState
    downstream: str
    result: bytes | None = None
    resource: str | None = None


class Reservation(Struct, frozen=True, gc=False):
    """Asks for a key. `token` is random and names this request for reading back."""

    key: bytes
    tenant: str
    surface: str
    label: str
    fingerprint: bytes
    body: bytes
    received_at_ms: int
    lease_ms: int
    attempts_max: int
    token: int
    quarantine: str | None = None
    actor: str = "gate"


class Reserved(Struct, frozen=True, gc=False):
    """What a reservation came to.

    With a claiming decision `fence` is the claim's number: it is larger than any number the key had
    before, also after the key was forgotten. `steps` are what earlier attempts recorded.
    """

    decision: Decision
    entry_id: int
    fence: int = 0
    attempt: int = 1
    state: State = State.IN_FLIGHT
    steps: tuple[StepRecord, ...] = ()
    outcome: bytes | None = None
    reason: str | None = None
    retry_after_ms: int = 0
    first_reserved_ticks: int = 0
    received_at_ms: int = 0
    lapsed_at_ticks: int = 0
    now_ticks: int = 0


class Renewal(Struct, frozen=True, gc=False):
    """Asks to keep a claim for another `lease_ms`."""

    entry_id: int
    fence: int
    lease_ms: int


class Progress(Struct, frozen=True, gc=False):
    """Records steps of a claim that goes on, with the business writes that belong to them."""

    entry_id: int
    fence: int
    steps: tuple[StepRecord, ...]
    at_ms: int
    writes: tuple[Statement, ...] = ()


class Settlement(Struct, frozen=True, gc=False):
    """Ends a claim: new state, outcome and business writes in one transaction, and one log record.

    `last_call_ticks` is when a downstream may last have been called, if that was before now; an entry
    that may be taken up again keeps it. `attempts_given_back` is 1 where the attempt could not even begin
    and shall not count. `clear_steps` drops step records that the outcome now carries.
    """

    entry_id: int
    fence: int
    state: State
    at_ms: int
    actor: str
    outcome: bytes | None = None
    reason: str | None = None
    steps: tuple[StepRecord, ...] = ()
    writes: tuple[Statement, ...] = ()
    clear_steps: bool = False
    last_call_ticks: int | None = None
    attempts_given_back: int = 0


class Attachment(Struct, frozen=True, gc=False):
    """Gives a committed entry the value its handler returned after its own transaction."""

    entry_id: int
    fence: int
    outcome: bytes


class Entry(Struct, frozen=True, gc=False):
    """Everything recorded of a key but its payload and outcome bodies."""

    entry_id: int
    key: bytes
    tenant: str
    surface: str
    label: str
    state: State
    attempt: int
    fence: int
    token: int | None
    fingerprint: bytes
    received_at_ms: int
    settled_at_ms: int | None
    lease_until_ticks: int | None
    reason: str | None


class EntryDetail(Struct, frozen=True):
    """An entry with its bodies, steps and log records."""

    entry: Entry
    body: bytes | None
    outcome: bytes | None
    steps: tuple[StepRecord, ...]
    records: tuple[LogRecord, ...]


class LogKind(IntEnum):
    """What a log record tells. The numbers are stored; never renumber."""

    COMMITTED = 2
    FAILED = 3
    RETRYABLE = 4
    UNKNOWN = 5
    HELD = 6
    QUARANTINED = 7
    CONFLICT = 8
    RECOVERED = 9
    FORGOTTEN = 10


class LogRecord(Struct, frozen=True):
    """One line of the log. `position` orders it: a reader that follows positions misses nothing."""

    position: int
    entry_id: int
    kind: LogKind
    at_ms: int
    actor: str
    note: str | None


class EntryFilter(Struct, frozen=True):
    """Which entries to list; every field that is None is not asked for."""

    states: tuple[State, ...] = ()
    surface: str | None = None
    tenant: str | None = None
    key_prefix: str | None = None
    label_contains: str | None = None


class Due(Struct, frozen=True):
    """Which of the entries looked at may be forgotten, and how to go on.

    `last_id` is the last entry looked at. `is_end` says that there are none after it, or that all of these
    were recent: entries are numbered in order of arrival, so nothing older is to be expected beyond.
    """

    entries: tuple[int, ...]
    looked: int
    last_id: int
    is_end: bool


class Forgetting(Struct, frozen=True):
    """Asks to remove these entries of a surface, as far as they are final and from before a moment."""

    surface: str
    before_ms: int
    entries: tuple[int, ...]
    at_ms: int
    actor: str


class Claims(Protocol):
    """Who may run a key, and what came of it."""

    def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
        """Decides each reservation atomically, in order, and returns one answer each.

        A key that is not known is inserted in flight (or quarantined, if the reservation says so, with
        one log record) and the answer is RUN (or QUARANTINE). A known key is judged by
        `model.states.judge`; when that claims, attempt and fence grow, the lease starts anew and, for
        RECOVER, one log record is written. A conflict writes one log record. The same key twice in
        `wanted` is decided as two arrivals. Inserting is one conditional statement: no reading first.
        """

    def renew(self, claims: Sequence[Renewal]) -> list[bool]:
        """Extends each lease whose fence is still right and tells which were."""

    def progress(self, wanted: Sequence[Progress]) -> list[bool]:
        """Records steps and runs the writes, only where the fence is still right and in flight."""

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Ends each claim whose fence is still right and in flight; False changes nothing at all.

        State, outcome, steps, writes and one log record are one transaction. A write that fails raises
        StoreRejected for the whole unit.
        """

    def attach(self, attachments: Sequence[Attachment]) -> list[bool]:
        """Gives committed entries without an outcome theirs, where the fence is still right."""

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads entries by key."""


class Log(Protocol):
    """The commit-ordered record."""

    def read_log(self, after: int, limit: int) -> list[LogRecord]:
        """Returns records after a position, oldest first; never passes one that may still commit."""


class Census(Protocol):
    """Lists and counts."""

    def entries(self, wanted: EntryFilter, before_id: int | None, limit: int) -> list[Entry]:
        """Returns entries, newest first, with ids below `before_id`."""

    def detail(self, entry_id: int) -> EntryDetail | None:
        """Reads one entry with all that belongs to it."""

    def counts(self) -> dict[State, int]:
        """Counts entries by state."""

    def surfaces(self) -> list[str]:
        """Names the surfaces that have entries."""

    def stranded(self, limit: int, surfaces: Sequence[str] | None = None) -> list[EntryDetail]:
        """Returns entries whose lease has lapsed or that may be tried again, oldest first.

        Only those of the given surfaces count, if any are given.
        """


class Pruning(Protocol):
    """Forgetting: in steps, each a short unit, so that no writer waits for long."""

    def due(self, surface: str, before_ms: int, now_ms: int, after_id: int, limit: int) -> Due:
        """Looks at the next `limit` entries after an id and names those that may be forgotten.

        These are committed or failed entries of the surface, received and settled before the moment. An
        entry received later than `now_ms` was dated by a wrong clock and does not count as recent. Only
        reads; the work is bounded by `limit`, whatever the ledger holds.
        """

    def forget(self, wanted: Forgetting) -> int:
        """Removes entries with their payloads, outcomes and steps, and tells how many.

        What is not final, of another surface, or from after the moment stays, whatever was asked for. The
        log keeps all it has; if anything was removed, one record says so under entry 0. No id and no fence
        of a removed entry is ever given out again.
        """

    def sight(self, wall_ms: int) -> Sighting:
        """Notes the wall time beside the ledger's own and returns what may be believed of it.

        All sessions of a ledger share one sighting; `model.retention.believe` decides.
        """


class Session(Claims, Log, Census, Pruning, Protocol):
    """One connection to a ledger, used by one thread at a time."""

    def unit(self, *, wait: bool = True, single: bool = False) -> AbstractContextManager[None]:
        """One transaction: commits on leaving, rolls back if the block raises.

        All other calls are made inside one. `single` announces exactly one call of Claims, which may then
        be a statement that commits by itself. Without `wait`, raises StoreBusy at once when somebody else
        is writing. Raises StoreUnavailable if it could not begin or certainly did not commit, StoreUnknown
        if the commit may have happened.
        """

    def execute(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Runs a user's statement inside the open unit and returns its rows."""

    def now_ticks(self) -> int:
        """The ledger's own time in milliseconds."""

    def settle_doubt(self) -> None:
        """Writes something harmless, so that an earlier doubtful commit either shows now or never."""

    def close(self) -> None:
        """Gives the connection back; never raises."""


class Joined(Protocol):
    """A user's own open transaction on the ledger's database: written into, never ended.

    Where `is_async`, the calls are awaited on the event loop of the user's connection; otherwise they are
    made on the user's own thread.
    """

    @property
    def is_async(self) -> bool:
        """Whether the calls give awaitables."""

    def reserve_one(self, reservation: Reservation, /) -> Reserved | Awaitable[Reserved]:
        """Reserves a key; another transaction with the same key is waited for."""

    def settle_one(self, settlement: Settlement, /) -> bool | Awaitable[bool]:
        """Ends a claim whose fence is still right; False changes nothing."""

    def is_open(self) -> bool:
        """Tells whether the user has not ended their transaction yet; never raises."""


class Durability(Enum):
    """What survives when a record has been acknowledged."""

    POWER_LOSS = "survives power loss"
    PROCESS_CRASH = "survives a crash of the process, not of the machine"
    MEMORY = "lost with the process"


class Capabilities(Struct, frozen=True):
    """What a store does and promises.

    `one_writer`: only one transaction can write at a time. `is_local`: a commit is a write to a local disk,
    short enough to be made in an event loop.
    """

    name: str
    durability: Durability
    writers_max: int
    audit_trail: bool
    business_writes: bool
    one_writer: bool = True
    is_local: bool = True


class Finding(Struct, frozen=True):
    """One line of a store's own examination."""

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


class Store(Protocol):
    """One ledger."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store does and promises."""

    @property
    def address(self) -> str:
        """Where the ledger is, without secrets."""

    def connect(self) -> Session:
        """Opens a session for reading and writing; brings an empty ledger to the current schema."""

    def knows(self, names: Sequence[str]) -> bool:
        """Tells whether everything is known that joining with these names takes; asks nobody."""

    def learn(self, names: Sequence[str]) -> None:
        """Makes the names known, durably and over a connection of its own."""

    def join(self, transaction: object) -> Joined:
        """Wraps a user's open transaction on the same database; raises UsageError if there is none.

        That it is the same database may be found out later, by the first call.
        """

    def exists(self) -> bool:
        """Tells whether there is anything at the address; raises StoreUnavailable where nothing can be."""

    def look(self) -> AbstractContextManager[Session]:
        """Opens one consistent moment for reading; creates and changes nothing.

        Raises StoreUnavailable where there is no ledger, SchemaMismatch where it is not up to date.
        """

    def pending_migrations(self) -> list[Migration]:
        """Tells which migrations the ledger still needs, without changing anything."""

    def migrate(self) -> list[Migration]:
        """Applies and returns the pending migrations."""

    def make_room(self, now_ms: int) -> list[str]:
        """Prepares for what will arrive and gives back what forgotten entries left; tells what it did.

        Never needed for anything to be right, and never waits long for others: what cannot be done now is
        done another time.
        """

    def examine(self) -> list[Finding]:
        """Looks at versions, durability and clock, for `oncegate doctor`."""
