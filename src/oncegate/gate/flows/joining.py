"""Same-database mode in the caller's own transaction: reserve, run and settle inside it (E4).

Reached through `gate.admit(…, tx=…)`. Must never end the caller's transaction, and never remember an
outcome that the caller may still undo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncegate.errors import ClaimLost
from oncegate.gate.admission import Admission, Verdict, from_reserved
from oncegate.gate.driver.requests import Flow, Invoke, Where
from oncegate.gate.flows.admit import ClaimAttempt, as_judged, remembered_replay, reservation_of
from oncegate.gate.flows.conflicts import joined_conflict_flow
from oncegate.gate.flows.identity import expired
from oncegate.gate.flows.outcome_documents import describe, outcome_of
from oncegate.gate.flows.settlement import settlement_of
from oncegate.gate.flows.transactions import learn_flow, settle_joined_flow
from oncegate.gate.runtime.claim import Claim, claim_of
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.runtime.resources import brought_by
from oncegate.gate.surface import Surface
from oncegate.model.states import Decision, State
from oncegate.store import Joined


def ambient_join(gate: GateContext, surface: Surface) -> Joined | None:
    """The way into the framework's own open transaction, for a same-database surface; None without one."""
    found = None if gate.ambient is None else gate.ambient.open_one(surface, admitting=True)
    is_joined = found is not None and surface.same_database and surface.lane is None
    return gate.commits.store.join(found) if is_joined else None


def joined_admit_flow(
    gate: GateContext, attempt: ClaimAttempt, joined: Joined, start: Callable[[Claim, Joined], Flow[Any]]
) -> Flow[Admission]:
    """Reserves, runs and settles in the caller's transaction; a key that is settled already is replayed."""
    arrival, surface = attempt.arrival, attempt.surface
    if (known := remembered_replay(gate, attempt)) is not None:
        return known
    reservation = reservation_of(gate, attempt)
    yield from learn_flow(gate, (surface.name, arrival.tenant, reservation.actor, attempt.declared.text))
    reserved = yield Invoke(joined.reserve_one, (reservation,), where=Where.HERE)
    gate.sightings.answered(surface.rule, arrival, reserved)
    if reserved.decision is Decision.CONFLICT:
        wanted = as_judged(reservation, reserved)
        return (yield from joined_conflict_flow(gate, surface, wanted, reserved.entry_id, joined))
    if not reserved.decision.claims:
        return from_reserved(arrival.key, reserved, surface.codec, arrival.skew_ms)
    if reserved.now_ticks >= attempt.until_ticks:
        raise expired(gate, surface)
    claim = claim_of(surface, arrival, reserved)
    try:
        value = yield from start(claim, joined)
        admission = yield from _settle(gate, claim, joined, value)
        if surface.rule.target is not None:
            gate.sightings.brought(surface.rule, arrival, brought_by(claim, value), claim.entry_id)
        return admission
    except GeneratorExit:  # the caller is being destroyed, and nothing more can be asked
        raise
    except BaseException as error:  # cancelled too: who catches that may still commit
        yield from _hold(gate, claim, joined, error)
        raise
    finally:
        claim.ended = True


def _settle(gate: GateContext, claim: Claim, joined: Joined, value: Any) -> Flow[Admission]:
    codec = claim.surface.codec
    body = codec.encode(value)
    settlement = settlement_of(gate, claim, State.COMMITTED, outcome_of(claim, body), None)
    yield from settle_joined_flow(claim, joined, settlement)
    return Admission(Verdict.RUN, claim.key.text, codec.as_replayed(value, body), resource=claim.resource)


def _hold(gate: GateContext, claim: Claim, joined: Joined, error: BaseException) -> Flow[None]:
    """Who commits in spite of the error keeps half a handler: nothing runs again, a person decides.

    Rolled back, as it should be, this leaves no trace.
    """
    if isinstance(error, ClaimLost):
        return
    reason = f"committed although the handler failed: {describe(error)}"
    settlement = settlement_of(gate, claim, State.HELD, None, reason)
    try:
        yield Invoke(joined.settle_one, (settlement,), where=Where.HERE)
    except Exception:  # noqa: BLE001  the server has given the transaction up already: it cannot commit
        return
