"""What the senders were told: nothing acknowledged is lost, and nobody is told something that is not so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lab.simulator.checkers.doubts import is_excused
from lab.simulator.checkers.effects import named
from lab.simulator.evidence import Evidence, Intent
from oncegate.gate.admission import Verdict
from oncegate.model.states import State

_AT_A_PERSON: Final = frozenset({State.UNKNOWN, State.HELD, State.QUARANTINED})
_EFFECTS: Final[dict[str, tuple[str, ...]]] = {
    "book": ("seats",),
    "print": ("labels",),
    "mail": ("mails",),
    "trip": ("labels", "seats", "mails"),
    "invoice": (),
    "record": (),
    "pay": ("seats",),
    "swap": ("seats",),
    "quote": ("seats", "labels"),
}
_UNDONE: Final = frozenset({"record"})  # its writes are lost with its record
_MAY_NEED_A_PERSON: Final = frozenset({"mail", "trip", "book", "pay", "swap", "quote"})


def recorded_before_acknowledged(evidence: Evidence) -> Iterator[str]:
    """I3: whatever is acknowledged was on record by then."""
    for ack in evidence.acks:
        if not ack.was_recorded and ack.intent not in evidence.lost:
            yield f"delivery {ack.delivery} of {named(ack.intent)} was acknowledged before it was recorded"


def nothing_is_lost(evidence: Evidence) -> Iterator[str]:
    """I2: an acknowledged event is committed, failed for good, or in front of a person."""
    states = states_of(evidence)
    for intent in {ack.intent for ack in evidence.acks}:
        found = states.get(intent, [])
        if is_excused(evidence, intent) or (intent.surface in _UNDONE and intent in evidence.lost):
            continue
        if not any(state.is_final or state in _AT_A_PERSON for state in found):
            now = ", ".join(state.label for state in found) or "not known here"
            yield f"{named(intent)} was acknowledged and is {now}"


def committed_means_done(evidence: Evidence) -> Iterator[str]:
    """I2: a committed event has had each of its effects; only an unrepeatable one may end at a person."""
    happened = {(effect.intent, effect.service) for effect in evidence.effects}
    for intent, states in states_of(evidence).items():
        for service in _EFFECTS[intent.surface]:
            if State.COMMITTED in states and (intent, service) not in happened:
                yield f"{named(intent)} is committed without its effect at {service}"
        if intent.surface in _MAY_NEED_A_PERSON or intent in evidence.lost:
            continue
        if set(states) & _AT_A_PERSON:
            yield f"{named(intent)} needs a person, though its downstream can be asked"


def all_settles(evidence: Evidence) -> Iterator[str]:
    """I2: once nothing goes wrong any more, everything comes to its end."""
    yield from evidence.unsettled


def answers_agree(evidence: Evidence) -> Iterator[str]:
    """I7: who sends another content learns nothing; who sends the same gets what was done."""
    for ack in evidence.acks:
        admission = ack.admission
        if admission is None or admission.verdict not in (Verdict.RUN, Verdict.REPLAY):
            if admission is not None and (admission.value is not None or admission.error is not None):
                yield f"delivery {ack.delivery} got {admission.verdict.value} with an outcome"
        elif admission.value is not None and admission.value.get("amount") != ack.amount:
            yield f"delivery {ack.delivery} was answered with the outcome of another content"


def states_of(evidence: Evidence) -> dict[Intent, list[State]]:
    """The states that the ledger has for each intent: one each, if all is well."""
    found: dict[Intent, list[State]] = {}
    for number, row in evidence.tables.rows.items():
        if number in evidence.intents:
            found.setdefault(evidence.intents[number], []).append(row.state)
    return found
