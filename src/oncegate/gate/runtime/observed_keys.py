"""Keys of observed arrivals, as the ledger notes them: a known key is only read, a new one reserved.

One transaction notes many beginnings and ends. Must never run, hold, quarantine or log anything about a key
that is known: an observed arrival changes nothing for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from oncegate.commit.operations import Operation
from oncegate.model.states import UNKNOWN_CONTENT, Decision, State
from oncegate.store import ClaimSession, Entry, Reservation, Reserved, Settlement

OBSERVED: Final = "ran while the surface observed"
FAILED_WHILE_OBSERVED: Final = "its handler failed while the surface observed; it may have acted before"
_PARKED: Final = {
    State.HELD: Decision.HOLD,
    State.UNKNOWN: Decision.HOLD,
    State.QUARANTINED: Decision.QUARANTINE,
}


class ObservedEnd(Struct, frozen=True):
    """How an observed handler ended; `outcome` is None where its value cannot be stored."""

    succeeded: bool
    at_ms: int
    outcome: bytes | None = None


class ObservedNote(Struct, frozen=True):
    """An observed arrival. `reserved` is what was noted of it before, `end` is None while it runs."""

    wanted: Reservation
    reserved: Reserved | None
    end: ObservedEnd | None


class NoteObserved(Operation[list[Reserved]]):
    """Notes observed arrivals and their ends; answers what each would have been."""

    request: tuple[ObservedNote, ...]

    @classmethod
    def run(cls, session: ClaimSession, operations: Sequence[NoteObserved]) -> Sequence[list[Reserved]]:
        """One after the other."""
        return [_note(session, one.request) for one in operations]

    def recall(self, session: ClaimSession) -> list[Reserved] | None:
        """Not read back: what is in doubt counts as not recorded, and its claim ends by its lease."""
        return None


def _note(session: ClaimSession, notes: Sequence[ObservedNote]) -> list[Reserved]:
    """In order: a key that comes twice is judged after its first arrival was noted."""
    answers: list[Reserved] = []
    while len(answers) < len(notes):
        keys: set[bytes] = set()
        wave = []
        for one in notes[len(answers) :]:
            if one.wanted.key in keys:
                break
            keys.add(one.wanted.key)
            wave.append(one)
        answers += _note_wave(session, wave)
    return answers


def _note_wave(session: ClaimSession, notes: Sequence[ObservedNote]) -> list[Reserved]:
    found = [one.reserved or _judged(session, one.wanted) for one in notes]
    new = [place for place, reserved in enumerate(found) if reserved is None]
    for place, reserved in zip(new, session.reserve([notes[place].wanted for place in new]), strict=True):
        found[place] = reserved
    answers = [one for one in found if one is not None]
    for note, reserved in zip(notes, answers, strict=True):
        if note.end is not None and reserved.decision.claims:
            _end(session, note.wanted, reserved, note.end)
    return answers


def _judged(session: ClaimSession, wanted: Reservation) -> Reserved | None:
    """What a known key would have answered; None for one that is to be reserved."""
    entry = next((one for one in session.read([wanted.key, *wanted.also]) if one is not None), None)
    if entry is None:
        return None
    decision = _decision(entry, wanted.fingerprint, session.now_ticks())
    if decision is None:
        return None
    return Reserved(decision, entry.entry_id, state=entry.state, received_at_ms=entry.received_at_ms)


def _decision(entry: Entry, fingerprint: bytes, now_ticks: int) -> Decision | None:
    if entry.fingerprint not in (fingerprint, UNKNOWN_CONTENT):
        return Decision.CONFLICT
    if entry.state.is_final:
        return Decision.REPLAY
    if entry.state is State.IN_FLIGHT and now_ticks < (entry.lease_until_ticks or 0):
        return Decision.BUSY
    return _PARKED.get(entry.state)


def _end(session: ClaimSession, wanted: Reservation, reserved: Reserved, end: ObservedEnd) -> None:
    """A success is known from now on. After a failure a new key is unknown again.

    A key that an attempt of the gate left open goes to a person: the handler may have acted before it
    failed, and the steps on record are of the earlier attempt.
    """
    if not end.succeeded and all(session.withdraw([reserved.claim])):
        return
    state, reason = (State.COMMITTED, OBSERVED) if end.succeeded else (State.UNKNOWN, FAILED_WHILE_OBSERVED)
    session.settle(
        [Settlement(*reserved.claim, state, end.at_ms, wanted.actor, outcome=end.outcome, reason=reason)]
    )
