"""Claims that no worker may take up: their event is known by the key of a newer template (I27).

A process that slept over the end of an overlap reserves under the old key once more, calls nothing, and
gives the claim back; it may die before that. A process that inserts a newer key looks the older ones up
first. So where both are known, the claim under the older key came later and has called nothing. Recovery
asks here before it takes a claim up, and so does the engine that runs accepted events.
"""

from __future__ import annotations

from oncegate.commit.operations import ReadTogether, Reserve
from oncegate.errors import Failed, OutcomeUnknown
from oncegate.gate.admission import Admission, from_reserved
from oncegate.gate.driver.requests import Flow
from oncegate.gate.flows.admit import wanted_again
from oncegate.gate.flows.settlement import settle_failure_flow
from oncegate.gate.runtime.claim import claim_of
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.surface import Surface
from oncegate.model.identity import KeyPlan, newer_keys
from oncegate.model.keys import Key
from oncegate.model.surface import Arrival
from oncegate.store import Entry, Reserved, StepState


def newer_key_flow(plan: KeyPlan, surface: Surface, arrival: Arrival, event: object) -> Flow[Key | None]:
    """The key of a newer template by which an event is known that has an entry under its own key too."""
    newer = () if plan.is_plain else newer_keys(plan, surface.rule, arrival, event)
    if not newer:
        return None
    own, *others = yield ReadTogether((arrival.key.digest, *newer))
    found: Entry | None = None if own is None else next(filter(None, others), None)
    return None if found is None else Key(found.key)


def end_flow(gate: GateContext, surface: Surface, arrival: Arrival, known: Key) -> Flow[Admission]:
    """Ends a claim whose event is known by another key; nothing is called."""
    reserved: Reserved = yield Reserve(wanted_again(gate, surface, arrival))
    if not reserved.decision.claims:
        return from_reserved(arrival.key, reserved, surface.codec)
    claim = claim_of(surface, arrival, reserved)
    told = f"the event is known by its newer key {known.text}; this claim of an outdated process is ended"
    acted = [step.name for step in claim.steps.values() if step.state is not StepState.NOT_APPLIED]
    error = (
        OutcomeUnknown(f"{told}, but {acted[0]} may have happened for it: find out")
        if acted
        else Failed(f"{told}, nothing was called for it")
    )
    yield from settle_failure_flow(gate, claim, error)
    raise error
