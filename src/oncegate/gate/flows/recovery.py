"""What a later attempt must know of the earlier ones: which steps they may have called, and as what.

The program may have changed in between. Its effects ask here before a call that may be a second one, and so
does the gate before it runs a handler again. Must never find less than what may have happened: where
nothing was kept of an earlier attempt, everything may have (I24).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.errors import OutcomeUnknown
from oncegate.gate.codec import step_values
from oncegate.gate.codec.values import Codec, attested
from oncegate.gate.flows.downstream_turns import StillUnderWay
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.surface import Downstream
from oncegate.model.declarations import (
    OPAQUE_STEP,
    Declaration,
    HandlerKind,
    StartedStep,
    capability_of,
    decode,
    find_unnamed,
    more_careful,
    text_of,
    untold,
)
from oncegate.model.downstream import Capability, Promise
from oncegate.model.states import Decision
from oncegate.store import StepRecord, StepState

THIS_DATABASE: Final = "(this database)"
_NAME_IT: Final = "give steps names of their own (name=) that stay when functions are renamed"


class Past(Struct, frozen=True):
    """What is known of a claim's earlier attempts; `declaration` is None where none was kept."""

    declaration: Declaration | None
    steps: dict[str, StepRecord]

    def begun(self) -> list[StartedStep]:
        """Every step that may have been called, or has."""
        recorded = [
            StartedStep(step.name, step.downstream)
            for step in self.steps.values()
            if step.state is not StepState.NOT_APPLIED
        ]
        if self.declaration is None or self.declaration.kind is not HandlerKind.ONCE:
            return recorded
        return recorded + [one for one in untold(self.declaration) if one.name not in self.steps]

    def covers(self, step: str, downstream: Downstream) -> bool:
        """Whether the first claim's declaration speaks of such a call, with what is declared now."""
        found = None if self.declaration is None else self.declaration.place_of(step)
        return found is not None and (found[0], found[1].capability) == (
            downstream.name,
            downstream.capability,
        )


class Earlier(Struct, frozen=True):
    """What earlier attempts may have done about one step, and what may be relied on about that."""

    capability: Capability
    may_have_begun: bool


def past_of(claim: Claim) -> Past:
    """What is known of the attempts before this one."""
    past: Past | None = claim.past
    if past is None:
        past = claim.past = Past(decode(claim.reserved.declared), dict(claim.steps))
    return past


def earlier(claim: Claim, step: str, at: Downstream, recorded: StepRecord | None) -> Earlier:
    """Puts together what was declared then and what is declared now about a step."""
    past = past_of(claim)
    if recorded is not None:
        then = capability_of(recorded.declared)
        return Earlier(more_careful(then, at.capability), True)
    if past.declaration is None:
        return Earlier(more_careful(None, at.capability), True)
    found = past.declaration.place_of(step)
    if found is None:
        return Earlier(at.capability, False)
    then = found[1].capability
    return Earlier(more_careful(then, at.capability), then.promise is not Promise.AT_MOST_ONCE)


def must_record_start(claim: Claim, step: str, at: Downstream, recorded: StepRecord | None) -> bool:
    """Whether a call leaves a record first, because nothing else would tell a later version of it."""
    if claim.is_first_attempt:
        return claim.declared is None or not claim.declared.covers(step, at)
    if recorded is not None and recorded.state is not StepState.DONE:
        return recorded.declared != declared_text(claim, step, at, recorded)
    return not past_of(claim).covers(step, at)


def declared_text(claim: Claim, step: str, at: Downstream, recorded: StepRecord | None) -> str:
    """What is kept with a step that is called now: the most careful of all that was ever declared."""
    if claim.is_first_attempt or not earlier(claim, step, at, recorded).may_have_begun:
        return at.declared
    return text_of(earlier(claim, step, at, recorded).capability)


def refuse_unnamed(gate: GateContext, claim: Claim, step: str, at: str) -> None:
    """Raises OutcomeUnknown if a step that this program has no name for may have been this very call."""
    past = past_of(claim)
    if step in past.steps:
        return
    if past.declaration is None:
        _note_doubt(claim, step, at)
        raise OutcomeUnknown(
            f"{step} at {at} may have happened: an earlier attempt kept nothing of what it declared"
        )
    if past.declaration.place_of(step) is not None:
        return
    unnamed = find_unnamed(past.begun(), claim.used_names, at, gate.downstreams.keys())
    if unnamed is not None:
        _note_doubt(claim, step, at)
        raise OutcomeUnknown(
            f"an earlier version of the program may have called step {unnamed.name} at "
            f"{unnamed.downstream}; this one calls {step} there and has no step {unnamed.name}: it may be "
            f"the same. Find out whether it happened; {_NAME_IT}"
        )


def refuse_elsewhere(claim: Claim, step: str, at: str, recorded: StepRecord | None) -> None:
    """Raises OutcomeUnknown if a step of this name may have been called at another downstream."""
    declaration = past_of(claim).declaration
    found = None if declaration is None else declaration.place_of(step)
    if recorded is not None:
        where = None if recorded.state is StepState.NOT_APPLIED else recorded.downstream
    else:
        leaves_no_record = found is not None and found[1].capability.promise is not Promise.AT_MOST_ONCE
        where = found[0] if found is not None and leaves_no_record else None
    if where is not None and where != at:
        _note_doubt(claim, step, at)
        raise OutcomeUnknown(
            f"{step} may have happened at {where}; this version of the program calls it at {at}"
        )


def _note_doubt(claim: Claim, step: str, at: str) -> None:
    """One step stands for all that a person has to find out; the others are not asked for besides."""
    for known in claim.steps.values():
        if known.state is StepState.STARTED:
            claim.note(replace(known, state=StepState.CALLED))
    claim.note(StepRecord(step, StepState.STARTED, at))


def opaque_start(claim: Claim, recorded: StepRecord | None) -> StepRecord | None:
    """What is known of an opaque call that may have been made: its first start is not recorded.

    An interrupted attempt had started it. Of one that ended, only a record says that nothing happened.
    """
    at, interrupted = claim.surface.opaque_at, claim.reserved.decision is Decision.RECOVER
    if recorded is not None or not (interrupted or at.is_unrepeatable):
        return recorded
    declaration = past_of(claim).declaration
    if declaration is None:
        return StepRecord(OPAQUE_STEP, StepState.STARTED, at.name)
    found = declaration.place_of(OPAQUE_STEP)
    if declaration.kind is not HandlerKind.OPAQUE or found is None:
        return None  # another kind of handler, which called nothing that is not on record
    return StepRecord(OPAQUE_STEP, StepState.STARTED, found[0], declared=text_of(found[1].capability))


def check_handler(claim: Claim) -> StepRecord | None:
    """Looks at a handler that is about to run again; returns the record that stands for all of it, if any.

    Raises OutcomeUnknown where another kind of handler may have done what this one would do, and NotYet
    where it is too early and running would call other steps in vain.
    """
    _wait_before_calls(claim)
    past, now = past_of(claim), claim.surface.declaring.now.kind
    then = None if past.declaration is None else past.declaration.kind
    if now is then or then is HandlerKind.DATABASE or (then is None and now is not HandlerKind.DATABASE):
        return None
    said = past.steps.get(OPAQUE_STEP)
    if said is not None and not _is_own_step(past.declaration):
        if said.state is StepState.NOT_APPLIED:
            return None
        if said.state is StepState.DONE:
            return None if now is HandlerKind.OPAQUE else said
    if then is HandlerKind.ONCE and not past.begun():
        return None
    raise _other_kind(claim, past.declaration, now)


def _is_own_step(declaration: Declaration | None) -> bool:
    """Whether a handler that takes once had itself a step of the name that stands for a whole handler."""
    if declaration is None or declaration.kind is not HandlerKind.ONCE:
        return False
    return declaration.place_of(OPAQUE_STEP) is not None


_NOW: Final = {
    HandlerKind.ONCE: "takes once",
    HandlerKind.OPAQUE: "is one call that knows nothing of the gate",
    HandlerKind.DATABASE: "is same-database",
}
_THEN: Final = {
    HandlerKind.ONCE: "made calls of its own",
    HandlerKind.OPAQUE: "was one call",
    HandlerKind.DATABASE: "was same-database",
}


def _other_kind(claim: Claim, declaration: Declaration | None, now: HandlerKind) -> OutcomeUnknown:
    then = "kept nothing of what it declared" if declaration is None else _THEN[declaration.kind]
    place = None if declaration is None else declaration.place_of(OPAQUE_STEP)
    at = claim.surface.opaque_at.name if now is HandlerKind.OPAQUE else THIS_DATABASE
    _note_doubt(claim, OPAQUE_STEP, at if place is None else place[0])
    return OutcomeUnknown(
        f"the handler of an earlier version {then} and may have acted; this one {_NOW[now]} and would act "
        f"again. Find out what happened: step {OPAQUE_STEP} stands for the whole handler"
    )


def _wait_before_calls(claim: Claim) -> None:
    """A step in doubt still waits, and steps before it would be called again for nothing (I26)."""
    if claim.reserved.decision is not Decision.RETRY:
        return
    lost = [s for s in claim.steps.values() if s.state is StepState.DONE and s.result is None]
    waiting = next((s for s in claim.steps.values() if _waits(claim, s)), None)
    if lost and waiting is not None:
        raise StillUnderWay(
            f"{waiting.name} at {waiting.downstream}: an earlier request may still be under way, and "
            f"{lost[0].name} would be called again before it",
            claim,
        )


def _waits(claim: Claim, step: StepRecord) -> bool:
    capability = capability_of(step.declared)
    if step.state is not StepState.CALLED or step.last_call_ticks is None or capability is None:
        return False
    age = timedelta(milliseconds=claim.reserved.now_ticks - step.last_call_ticks)
    return age < capability.request_life_max


def last_call_ticks(claim: Claim, recorded: StepRecord | None) -> int:
    """When a step's downstream may last have been called, in the ledger's time.

    After a crash that is the end of the lease; else what the step's own record says, so that calls of other
    steps do not begin its wait again (I26).
    """
    reserved = claim.reserved
    own = None if recorded is None else recorded.last_call_ticks
    if own is None or reserved.decision is Decision.RECOVER:
        return reserved.lapsed_at_ticks
    return own


def refuse_unfinished(claim: Claim) -> None:
    """Raises OutcomeUnknown for a step in doubt that the handler, having ended well, never came to."""
    if claim.is_first_attempt or claim.committed or claim.joined:
        return
    for step in tuple(claim.steps.values()):
        if step.state is StepState.STARTED and step.name not in claim.used_names:
            raise OutcomeUnknown(
                f"{step.name} at {step.downstream} may have happened, and the handler ended without it; "
                f"{_NAME_IT}"
            )


def recorded_result(recorded: StepRecord, codec: Codec) -> Any:
    """What a finished step returned; raises OutcomeUnknown where that could not be stored."""
    if recorded.result is None:
        raise OutcomeUnknown(
            f"step {recorded.name} is done but its result could not be stored; a person must finish it"
        )
    if step_values.is_typed(recorded.result):
        return step_values.decode(recorded.result)
    if recorded.resource is not None and recorded.result == attested(recorded.resource):
        return codec.decode_attested(recorded.resource)
    return codec.decode(recorded.result)
