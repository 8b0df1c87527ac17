"""Claims: who may run a key and what came of it, and the values that asking and answering take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from oncegate.model.content import ContentMark
from oncegate.model.states import INTERRUPTIONS_MAX, Decision, State, Stored
from oncegate.store.log import LogRecord

Statement = tuple[str, Sequence[Any]]
# Where `Capabilities.transact_items`, writes are these: each has one item of TransactWriteItems.
TRANSACT_ITEM: Final = "TransactWriteItems"


class StepState(Stored):
    """How far a named step has come. The numbers are stored; never renumber."""

    STARTED = 1
    DONE = 2
    NOT_APPLIED = 3
    CALLED = 4  # may have happened, at a downstream that can be called again or asked


class StepRecord(Struct, frozen=True, gc=False):
    """A step of a handler that has been started or finished.

    `started_at_ms` is when the call was made that the record tells of; None where it was not recorded.
    `declared` is what the downstream was declared to do then (`model.declarations`). `last_call_ticks` is
    when it may last have been called, in the ledger's time; None means when the claim's last attempt ended.
    Before `first_call_ticks` it certainly was not called; None means before the claim's first reservation.
    """

    name: str
    state: StepState
    downstream: str
    result: bytes | None = None
    resource: str | None = None
    started_at_ms: int | None = None
    declared: str | None = None
    last_call_ticks: int | None = None
    first_call_ticks: int | None = None


class ClaimId(NamedTuple):
    """Names one claim. Every request that acts for it carries all four.

    Numbers of entries and fences are given out again by a ledger that went back in time (an asynchronous
    failover, a restored copy): only the random token says that this very claim is meant. The key is there
    for stores that have no entry numbers.
    """

    entry_id: int
    fence: int
    token: int
    key: bytes


class Reservation(Struct, frozen=True, gc=False):
    """Asks for a key. `token` is random: it names this request for reading back, and the claim it makes.

    `quarantine` and `hold` are reasons for which a new key is not run but waits for a person. `ends_here`
    announces that the claim is settled in the transaction that makes it: a store may leave out what only
    others would need in between. `declared` is what the program declares about the surface
    (`model.declarations`): the store keeps it with the first claim on the key. With `at_once` a failed
    attempt is made again before its wait is over: a person asked for it. `also` are other keys that the
    event may be known by. After `deaths_max` claims in a row that ended with a dead worker the key is held.
    `keep_ms` is how long the key must be known after its first arrival. Only a store that removes keys by
    itself reads it; 0 means for ever.
    """

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
    hold: str | None = None
    content: ContentMark | None = None
    ends_here: bool = False
    declared: str | None = None
    at_once: bool = False
    also: tuple[bytes, ...] = ()
    deaths_max: int = INTERRUPTIONS_MAX
    keep_ms: int = 0

    @property
    def runs(self) -> bool:
        """Whether a new key is simply run."""
        return self.quarantine is None and self.hold is None

    @property
    def parked(self) -> tuple[State, str | None]:
        """The state that a new key begins in, and why, if it is not simply run."""
        if self.quarantine is not None:
            return State.QUARANTINED, self.quarantine
        return (State.IN_FLIGHT, None) if self.hold is None else (State.HELD, self.hold)


class Reserved(Struct, frozen=True, gc=False):
    """What a reservation came to.

    With a claiming decision `fence` is the claim's number: it is larger than any number the key had
    before, also after the key was forgotten. `steps` are what earlier attempts recorded. `never_run` says
    that the key was known but no claim was ever given on it before: a person has let it through.
    `received_at_ms` is when the key first arrived; 0 for one that was parked just now, and for a
    conflict, which learns nothing. `declared` is what was declared when the first claim on a known key was
    made; None where no declaration was kept, and for claims that are the first.
    `token` and `key` are the request's own, where it claims.
    `judged` is the key that was judged, where it is one of `Reservation.also`. `tried_from_ticks` is when a
    person last let the event be tried again; 0 if that never was. `claimed_again` says, without a claiming
    decision, that more than one claim was given on the key: its first attempt did not end it.
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
    never_run: bool = False
    declared: str | None = None
    token: int = 0
    key: bytes = b""
    judged: bytes | None = None
    tried_from_ticks: int = 0
    claimed_again: bool = False

    @property
    def claim(self) -> ClaimId:
        """Names the claim that was given."""
        return ClaimId(self.entry_id, self.fence, self.token, self.key)


class Renewal(Struct, frozen=True, gc=False):
    """Asks to keep a claim for another `lease_ms`."""

    entry_id: int
    fence: int
    token: int
    key: bytes
    lease_ms: int


class StepRecords(Struct, frozen=True, gc=False):
    """Records steps of a claim that goes on, with the business writes that belong to them.

    `probed` is what a downstream answered when it was asked about the key: one log record, for people.
    """

    entry_id: int
    fence: int
    token: int
    key: bytes
    steps: tuple[StepRecord, ...]
    at_ms: int
    writes: tuple[Statement, ...] = ()
    probed: str | None = None
    actor: str = "gate"


class Settlement(Struct, frozen=True, gc=False):
    """Ends a claim: new state, outcome and business writes in one transaction, and one log record.

    `last_call_ticks` is when a downstream may last have been called, if that was before now; an entry
    that may be taken up again keeps it. `attempts_given_back` is 1 where the attempt certainly came to
    nothing and shall not count. A retryable entry is busy for `retry_in_ms` of the ledger's time.
    `clear_steps` drops step records that the outcome now carries.
    """

    entry_id: int
    fence: int
    token: int
    key: bytes
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
    retry_in_ms: int = 0

    @property
    def busy_ms(self) -> int | None:
        """How long the key is busy after it; None where it is not, or is not tried again."""
        return self.retry_in_ms if self.retry_in_ms and self.state is State.RETRYABLE else None


class Attachment(Struct, frozen=True, gc=False):
    """Gives a committed entry the value its handler returned after its own transaction."""

    entry_id: int
    fence: int
    token: int
    key: bytes
    outcome: bytes


class Entry(Struct, frozen=True, gc=False):
    """Everything recorded of a key but its payload and outcome bodies.

    `token` is that of the claim in flight, or of the claim that ended the entry finally; None otherwise.
    """

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
    retry_at_ticks: int | None = None


class EntryDetail(Struct, frozen=True):
    """An entry with its bodies, steps and log records.

    `body` is None where the store keeps none, `records` are empty where it has no audit trail. Such a store
    sets `has_past` once the key was claimed before its present claim.
    """

    entry: Entry
    body: bytes | None
    outcome: bytes | None
    steps: tuple[StepRecord, ...]
    records: tuple[LogRecord, ...]
    has_past: bool = False


class Claims(Protocol):
    """Who may run a key, and what came of it.

    Requests and entries are named by their key. `entry_id` is the key's number for people and logs: a store
    without numbers derives it from the key. A fence is a number of the store's choice that grows with every
    claim on a key, also after the key was forgotten. Log records are written where the store has an audit
    trail (`Capabilities.audit_trail`), and left out elsewhere.

    A claim is *held* where entry, fence and token on the entry are the request's own. A request whose claim
    is not held changes nothing and is answered False.
    """

    def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
        """Decides each reservation atomically, in order, and returns one answer each.

        A key that is not known is inserted in flight (or quarantined or held, if the reservation says so,
        with one log record), its mark of content is kept, and the answer is RUN (or QUARANTINE or HOLD). A
        known key is judged by `model.states.judge`; when that claims, attempt and fence grow, the lease
        starts again and one log record tells both (`log.ClaimNote`). The declaration that came with the
        first claim stays with the key, whatever later ones bring. A conflict writes one log record. The
        same key twice in `wanted` is decided as two arrivals. Inserting is one conditional statement: no
        reading first.

        A reservation with other keys (`also`) is judged under its own key if that is known, else under the
        first of the others that is, and only inserted, under its own, if none is. Looking and inserting are
        one step among all who ask with any of these keys (`store.alternatives`).
        """

    def record(self, wanted: Sequence[Reservation], outcome: bytes) -> Sequence[Reserved]:
        """Decides each as `reserve` does, but a key that is not known is committed with it, at once.

        For events with nothing to call. The answer RUN then means that the entry is settled, with this
        outcome, the time of its arrival as that of its end, and one log record; no reader ever sees it in
        flight. The same key again in `wanted` is a replay, or a conflict. Where a single call may commit
        by itself, all of this is the one statement that inserts. `store.recording` does it in two steps for
        all other stores.
        """

    def renew(self, claims: Sequence[Renewal]) -> list[bool]:
        """Extends each lease whose claim is still held and tells which were."""

    def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
        """Records steps and runs the writes, only where the claim is still held and in flight.

        Writes a log record only for an answer of a downstream (`StepRecords.probed`).
        """

    def settle(self, settlements: Sequence[Settlement], *, last: bool = False) -> list[bool]:
        """Ends each claim that is still held and in flight; False changes nothing at all.

        `last` announces that nothing follows in the unit: the store may commit it with this very call,
        if every claim is held; if one is not, the caller must leave the unit with an error.

        State, outcome, steps, writes and one log record are one transaction. A write that fails raises
        StoreRejected for the whole unit.
        """

    def withdraw(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Removes each entry whose first claim is held, with all that belongs to it; no log record.

        For arrivals that were refused before anything was done: the key is unknown again. An entry that was
        claimed before, or that has a step, stays, and the answer is False. No number of a removed entry is
        given out again.
        """

    def attach(self, attachments: Sequence[Attachment]) -> list[bool]:
        """Gives committed entries without an outcome theirs, where the claim committed them."""

    def are_committed(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Tells which claims have ended as committed."""

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads entries by key."""

    def details(self, keys: Sequence[bytes]) -> list[EntryDetail | None]:
        """Reads entries by key with all that belongs to them, for reading back a doubtful commit."""
