"""What can be asked of a ledger, as values that a batch can hold: each wraps one request of the contract.

The gate's flows yield these, the group commit runs many of one kind in one call. `recall` reads back what
came of an operation whose commit is in doubt: its answer if it took effect, None if it did not.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from msgspec import Struct

from oncegate.model.sql_guard import Carries, carried
from oncegate.model.states import Decision, State
from oncegate.store import (
    CLAIM_KINDS,
    Attachment,
    ClaimId,
    ClaimSession,
    Entry,
    LogKind,
    LogRecord,
    Observations,
    Renewal,
    Reservation,
    Reserved,
    Session,
    Settlement,
    StepRecords,
)
from oncegate.store.people import latest_ruling

T = TypeVar("T")
_NOTHING: Final = Carries.NOTHING
_CLAIMED_AGAIN: Final = frozenset(CLAIM_KINDS.values())


class Operation(Struct, Generic[T], eq=False):
    """One request to a ledger, answered by a T."""

    not_recalled: ClassVar[str] = "it was undone; nothing was changed"
    carries: ClassVar[Carries] = _NOTHING  # what of a user's is run with it
    request: Any
    loop: AbstractEventLoop | None = None  # whose task asked for it

    @classmethod
    def run(cls, session: Session, operations: Sequence[Any]) -> Sequence[T]:
        """Runs many of this kind inside the open unit."""
        raise NotImplementedError

    def recall(self, session: Session) -> T | None:
        """Reads back the answer after a doubtful commit; None means that it did not happen."""
        raise NotImplementedError

    @classmethod
    def recall_all(cls, session: Session, operations: Sequence[Any]) -> Sequence[T | None]:
        """Reads back many of this kind."""
        return [operation.recall(session) for operation in operations]

    def missed(self, answer: T | None) -> None:
        """The task that asked was cancelled and hears no answer; here it is, or None where there is none.

        Must be called in the task's loop.
        """


class Reserve(Operation[Reserved]):
    """Reserves a key. Read back by the random token that only this request knows."""

    request: Reservation
    not_recalled = "the key was not reserved, or its claim is left to lapse; nothing was run, try again"
    late: Future[Reserved | None] | None = None

    def missed(self, answer: Reserved | None) -> None:
        """Kept for the code that releases the claim."""
        late = self.answered_late()
        if not late.done():
            late.set_result(answer)

    def answered_late(self) -> Future[Reserved | None]:
        """The answer that a cancelled task has missed, as soon as it is there; only in the task's loop."""
        if self.late is None:
            self.late = get_running_loop().create_future()
        return self.late

    @classmethod
    def run(cls, session: ClaimSession, operations: Sequence[Reserve]) -> Sequence[Reserved]:
        """Runs reservations in one sweep."""
        return session.reserve([operation.request for operation in operations])

    def recall(self, session: ClaimSession) -> Reserved | None:
        """Finds the claim if our token stands on it.

        A claim that took over an earlier attempt is not picked up again: it is left to lapse, because
        what the earlier attempt recorded is not read here.
        """
        (entry,) = session.read([self.request.key])
        if entry is None or entry.token != self.request.token or entry.attempt > 1:
            return None
        if _has_a_past(session, entry.key):
            return None  # its attempts count anew, or one was given back
        now = session.now_ticks()
        return Reserved(
            Decision.RUN,
            entry.entry_id,
            entry.fence,
            first_reserved_ticks=now,
            received_at_ms=entry.received_at_ms,
            now_ticks=now,
            token=self.request.token,
            key=self.request.key,
        )


def _has_a_past(session: ClaimSession, key: bytes) -> bool:
    (found,) = session.details([key])
    if found is None or found.has_past or found.steps:
        return True
    was_claimed = any(record.kind in _CLAIMED_AGAIN for record in found.records)
    return was_claimed or latest_ruling(found.records) is not None


class Renew(Operation[bool]):
    """Extends a lease."""

    request: Renewal

    @classmethod
    def run(cls, session: ClaimSession, operations: Sequence[Renew]) -> Sequence[bool]:
        """Renews many leases."""
        return session.renew([operation.request for operation in operations])

    def recall(self, session: ClaimSession) -> bool | None:
        """Does not matter: an unrenewed lease lapses and is looked into."""
        return None


class RecordProgress(Operation[bool]):
    """Records steps of a claim that goes on."""

    request: StepRecords

    @property
    def carries(self) -> Carries:  # type: ignore[override]  # for each request its own
        """The step's own statements."""
        return carried(writes) if (writes := self.request.writes) else _NOTHING

    @classmethod
    def run(cls, session: ClaimSession, operations: Sequence[RecordProgress]) -> Sequence[bool]:
        """Records many."""
        return session.progress([operation.request for operation in operations])

    def recall(self, session: ClaimSession) -> bool | None:
        """Compares the recorded steps with ours, and looks for our record of a downstream's answer."""
        (detail,) = session.details([self.request.key])
        if detail is None or not _is_held(detail.entry, self.request):
            return None
        if self.request.probed is not None and not _is_told(detail.records, self.request):
            return None
        recorded = {(step.name, step.state) for step in detail.steps}
        return True if all((s.name, s.state) in recorded for s in self.request.steps) else None


def _is_told(records: Sequence[LogRecord], wanted: StepRecords) -> bool:
    ours = (LogKind.PROBED, wanted.at_ms, wanted.actor, wanted.probed)
    return any((r.kind, r.at_ms, r.actor, r.note) == ours for r in records)


class Settle(Operation[bool]):
    """Ends a claim."""

    request: Settlement

    @property
    def carries(self) -> Carries:  # type: ignore[override]  # for each request its own
        """The event's business writes."""
        return carried(writes) if (writes := self.request.writes) else _NOTHING

    @classmethod
    def run(cls, session: ClaimSession, operations: Sequence[Settle]) -> Sequence[bool]:
        """Settles many."""
        return session.settle([operation.request for operation in operations])

    def recall(self, session: ClaimSession) -> bool | None:
        """Only the holder of the claim can have settled it."""
        (detail,) = session.details([self.request.key])
        if detail is None or not _is_settled_by(detail.entry, self.request):
            return None
        return True if detail.entry.state is not State.IN_FLIGHT else None


class Withdraw(Operation[bool]):
    """Removes the entry of a first claim that was refused before anything was done."""

    request: ClaimId

    @classmethod
    def run(cls, session: ClaimSession, operations: Sequence[Withdraw]) -> Sequence[bool]:
        """Removes many."""
        return session.withdraw([operation.request for operation in operations])

    def recall(self, session: ClaimSession) -> bool | None:
        """Nothing else removes an entry in flight, and no number is given out again."""
        (entry,) = session.read([self.request.key])
        return True if entry is None or entry.entry_id != self.request.entry_id else None


def _is_held(entry: Entry, wanted: StepRecords | Attachment) -> bool:
    return (entry.fence, entry.token, entry.key) == (wanted.fence, wanted.token, wanted.key)


def _is_settled_by(entry: Entry, wanted: Settlement) -> bool:
    """Whether an entry has ended as a settlement wanted, by that settlement.

    Only a final entry keeps the token. Of the others the key, the fence and the time tell.
    """
    token = wanted.token if wanted.state.is_final else None
    return (entry.state, entry.fence, entry.token, entry.key, entry.settled_at_ms) == (
        wanted.state, wanted.fence, token, wanted.key, wanted.at_ms,
    )  # fmt: skip


class Attach(Operation[bool]):
    """Gives a committed entry the value its handler returned."""

    request: Attachment

    @classmethod
    def run(cls, session: ClaimSession, operations: Sequence[Attach]) -> Sequence[bool]:
        """Attaches many."""
        return session.attach([operation.request for operation in operations])

    def recall(self, session: ClaimSession) -> bool | None:
        """Looks whether an outcome is there."""
        (detail,) = session.details([self.request.key])
        if detail is None or detail.outcome is None or not _is_held(detail.entry, self.request):
            return None
        return True


class Observe(Operation[bool]):
    """Adds to the counters of what was seen."""

    request: Observations

    @classmethod
    def run(cls, session: Session, operations: Sequence[Observe]) -> Sequence[bool]:
        """Adds what many have seen."""
        session.observe([operation.request for operation in operations])
        return [True] * len(operations)

    def recall(self, session: Session) -> bool | None:
        """Taken for done: to lose a second of observations is better than to count it twice."""
        return True


class ReadEntry(Operation["Entry | None"]):
    """Reads an entry by its key, in turn with the writes."""

    request: bytes

    @classmethod
    def run(cls, session: ClaimSession, operations: Sequence[ReadEntry]) -> Sequence[Entry | None]:
        """Reads many."""
        return session.read([operation.request for operation in operations])

    def recall(self, session: ClaimSession) -> Entry | None:
        """Reads again."""
        return session.read([self.request])[0]


class ReadTogether(Operation["list[Entry | None]"]):
    """Reads entries by keys of one event, in turn with all who reserve with several keys."""

    request: tuple[bytes, ...]

    @classmethod
    def run(cls, session: Session, operations: Sequence[ReadTogether]) -> Sequence[list[Entry | None]]:
        """Reads for each."""
        session.serialise([key.hex() for operation in operations for key in operation.request])
        return [session.read(operation.request) for operation in operations]

    def recall(self, session: Session) -> list[Entry | None]:
        """Reads again."""
        return session.read(self.request)


class IsCommitted(Operation[bool]):
    """Tells whether a claim has ended as committed, in turn with the writes."""

    request: ClaimId

    @classmethod
    def run(cls, session: ClaimSession, operations: Sequence[IsCommitted]) -> Sequence[bool]:
        """Tells it of many."""
        return session.are_committed([operation.request for operation in operations])

    def recall(self, session: ClaimSession) -> bool:
        """Looks again."""
        return session.are_committed([self.request])[0]


class ReadPosition(Operation[int]):
    """Reads how far a lane has come, in turn with the writes."""

    request: bytes

    @classmethod
    def run(cls, session: Session, operations: Sequence[ReadPosition]) -> Sequence[int]:
        """Reads many."""
        return session.positions([operation.request for operation in operations])

    def recall(self, session: Session) -> int | None:
        """Reads again."""
        return session.positions([self.request])[0]
