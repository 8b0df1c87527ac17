"""Events that are only recorded: reserved and settled in one transaction, as nothing comes in between.

A surface without anything to call needs no lease that others could wait for, and no second commit. Must
never be used where a handler does anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Raw

from oncegate.commit.operations import Operation, Reserve
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.codec.outcome import Outcome, encode_outcome
from oncegate.gate.runtime.cache import CachedOutcome
from oncegate.gate.runtime.context import GateContext
from oncegate.model.states import Decision, State
from oncegate.model.surface import Arrival
from oncegate.store import ClaimSession, Entry, Reserved

OUTCOME: Final = encode_outcome(Outcome(Raw(b"null")))  # what any handler leaves that returns nothing
_RUN: Final = Decision.RUN
_COMMITTED: Final = State.COMMITTED
_RAN: Final = Verdict.RUN


class Record(Reserve):
    """Reserves a key; a new one is committed with it, and is answered as one that was run."""

    not_recalled = Operation.not_recalled

    @classmethod
    def run(cls, session: ClaimSession, operations: Sequence[Reserve]) -> Sequence[Reserved]:
        """Records all that are new, in one sweep."""
        return session.record([operation.request for operation in operations], OUTCOME)

    def recall(self, session: ClaimSession) -> Reserved | None:
        """Finds the entry if our token stands on it."""
        (entry,) = session.read([self.request.key])
        return self._found(entry)

    @classmethod
    def recall_all(cls, session: ClaimSession, operations: Sequence[Record]) -> Sequence[Reserved | None]:
        """Reads all back at once; of equals that met in one batch, the first was recorded."""
        first: dict[tuple[bytes, bytes], Record] = {}
        for one in operations:
            first.setdefault((one.request.key, one.request.fingerprint), one)
        entries = session.read([one.request.key for one in first.values()])
        found = {said: one._found(entry) for (said, one), entry in zip(first.items(), entries, strict=True)}
        answers: list[Reserved | None] = []
        for one in operations:
            said = (one.request.key, one.request.fingerprint)
            answer = found[said]
            answers.append(answer if answer is None or first[said] is one else _repeated(answer))
        return answers

    def _found(self, entry: Entry | None) -> Reserved | None:
        if entry is None or (entry.state, entry.token) != (_COMMITTED, self.request.token):
            return None
        return Reserved(_RUN, entry.entry_id, entry.fence, received_at_ms=entry.received_at_ms)


def _repeated(first: Reserved) -> Reserved:
    return Reserved(
        Decision.REPLAY,
        first.entry_id,
        state=_COMMITTED,
        outcome=OUTCOME,
        received_at_ms=first.received_at_ms,
    )


def recorded(gate: GateContext, arrival: Arrival, reserved: Reserved) -> Admission:
    """The answer to an event that was new, and is on record now."""
    known = CachedOutcome(
        reserved.entry_id, _COMMITTED, arrival.fingerprint, OUTCOME, None, reserved.received_at_ms
    )
    gate.cache.put(arrival.key.digest, known)
    gate.crashpoints.hit("settle.after")
    return Admission(_RAN, arrival.key.digest.hex())
