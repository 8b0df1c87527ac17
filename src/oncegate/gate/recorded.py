"""Events that are only recorded: reserved and settled in one transaction, as nothing comes in between.

A surface without anything to call needs no lease that others could wait for, and no second commit. Used
where a ledger has one writer, and so runs whatever a batch holds in one transaction; elsewhere these events
go the way of all others. Must never be used where a handler does anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Raw

from oncegate.errors import StoreUnavailable
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.cache import Remembered
from oncegate.gate.context import GateContext
from oncegate.gate.outcome import Outcome, encode_outcome
from oncegate.model.states import Decision, State
from oncegate.model.surface import Arrival
from oncegate.operations import Reserve
from oncegate.store import Reservation, Reserved, Session, Settlement

OUTCOME: Final = encode_outcome(Outcome(Raw(b"null")))  # what any handler leaves that returns nothing
_RUN: Final = Decision.RUN
_BUSY: Final = Decision.BUSY
_COMMITTED: Final = State.COMMITTED
_RAN: Final = Verdict.RUN


class Record(Reserve):
    """Reserves a key; a new one is committed with it, and is answered as one that was run."""

    @classmethod
    def run(cls, session: Session, operations: Sequence[Reserve]) -> Sequence[Reserved]:
        """Records all that are new, in one sweep each way."""
        wanted = [operation.request for operation in operations]
        answers = session.reserve(wanted)
        ends = [
            Settlement(
                answer.entry_id, answer.fence, _COMMITTED, request.received_at_ms, request.actor, OUTCOME
            )
            for request, answer in zip(wanted, answers, strict=True)
            if answer.decision is _RUN
        ]
        if ends and not all(session.settle(ends)):
            raise StoreUnavailable("what was reserved just now could not be settled; nothing was changed")
        return answers if len(ends) == len(answers) else _asked_again(session, wanted, answers)

    def recall(self, session: Session) -> Reserved | None:
        """Finds the entry if it is ours. A settled one has no token left; its times and content tell."""
        (entry,) = session.read([self.request.key])
        at_ms = self.request.received_at_ms
        ours = (_COMMITTED, self.request.fingerprint, at_ms, at_ms)
        if entry is None:
            return None
        if (entry.state, entry.fingerprint, entry.received_at_ms, entry.settled_at_ms) != ours:
            return None
        return Reserved(_RUN, entry.entry_id, entry.fence, received_at_ms=at_ms)


def _asked_again(session: Session, wanted: list[Reservation], answers: list[Reserved]) -> list[Reserved]:
    """Whoever found a key in flight is judged again: what this batch has settled is a replay by now."""
    return [
        session.reserve([request])[0] if answer.decision is _BUSY else answer
        for request, answer in zip(wanted, answers, strict=True)
    ]


def recorded(gate: GateContext, arrival: Arrival, reserved: Reserved) -> Admission:
    """The answer to an event that was new, and is on record now."""
    known = Remembered(
        reserved.entry_id, _COMMITTED, arrival.fingerprint, OUTCOME, None, reserved.received_at_ms
    )
    gate.cache.put(arrival.key.digest, known)
    gate.crashpoints.hit("settle.after")
    return Admission(_RAN, arrival.key.digest.hex())
