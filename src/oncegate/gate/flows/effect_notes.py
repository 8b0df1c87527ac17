"""What an effect leaves on record: a call that certainly did not happen, one in doubt, one that is done.

The effect flow notes it, the next write of the claim carries it. Must never say of a call that may have
arrived that it did not happen, nor forget that an earlier one may have (I9).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.errors import Failed, NotApplied, UsageError
from oncegate.gate.codec import step_values
from oncegate.gate.codec.callable_info import Callee
from oncegate.gate.driver.requests import NotCalled
from oncegate.gate.flows.downstream_turns import StillUnderWay
from oncegate.gate.flows.recovery import declared_text, earlier
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.runtime.reachability import Reach, reach_of, was_turned_away
from oncegate.gate.runtime.resources import resource_of
from oncegate.gate.surface import Downstream
from oncegate.model.declarations import (
    OPAQUE_STEP,
    HandlerKind,
    decode,
    pattern_of,
    text_of,
    untold,
)
from oncegate.store import StepRecord, StepState

_DONE: Final = StepState.DONE


class EffectCall(Struct, frozen=True):
    """One call that a handler wants made once: where, what, and as which step."""

    gate: GateContext
    claim: Claim
    downstream: Downstream
    step_name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    callee: Callee


def note_wait(call: EffectCall, recorded: StepRecord | None, declared: str, last_ticks: int) -> None:
    """Keeps since when a step waits: what other steps do meanwhile does not begin its wait again (I26)."""
    step = recorded or StepRecord(call.step_name, StepState.CALLED, call.downstream.name)
    call.claim.note(replace(step, state=StepState.CALLED, declared=declared, last_call_ticks=last_ticks))


def note_failed_call(
    call: EffectCall,
    recorded: StepRecord | None,
    error: BaseException,
    started_at_ms: int,
    *,
    is_refused: bool,
) -> None:
    """Notes what a call that raised may have done; `recorded` is what was known before it.

    A call that certainly did not happen leaves what is known of earlier ones as it is. What another event's
    end says is about that event: this call may have acted before it.
    """
    says_so = not call.claim.is_anothers(error)
    denied = is_refused or (says_so and is_denied(error))
    if not call.downstream.is_unrepeatable:
        _note_repeatable(call, recorded, started_at_ms, denied=denied)
    elif denied:
        note_denied(call, started_at_ms)
    elif not (says_so and isinstance(error, Failed)):
        call.claim.in_doubt = call.step_name
        note_doubt(call, started_at_ms)


def is_denied(error: BaseException) -> bool:
    """Whether an error says that its call certainly changed nothing."""
    if isinstance(error, (NotApplied, NotCalled)):
        return not isinstance(error, StillUnderWay)
    return reach_of(error) is Reach.NOT_REACHED or was_turned_away(error)


def note_call(call: EffectCall, recorded: StepRecord | None) -> None:
    """Takes back, before a call, that its step did not happen; the next write of the claim carries it.

    A step beside this one may end the attempt while the call is under way (test_certain_failures.py).
    """
    if recorded is None or not _is_denial(recorded) or recorded.first_call_ticks is None:
        return
    claim, name, at = call.claim, call.step_name, call.downstream
    step = StepRecord(name, StepState.CALLED, at.name, started_at_ms=call.gate.clock.wall_ms())
    declared = declared_text(claim, name, at, recorded)
    claim.note(replace(step, declared=declared, first_call_ticks=claim.reserved.now_ticks))


def _note_repeatable(
    call: EffectCall, recorded: StepRecord | None, started_at_ms: int, *, denied: bool
) -> None:
    claim = call.claim
    if denied and is_untouched(call, recorded):
        note_denied(call, started_at_ms)
    elif (known := claim.steps.get(call.step_name)) is not None and known.last_call_ticks is not None:
        claim.note(replace(known, last_call_ticks=None))  # it was called just now


def is_untouched(call: EffectCall, recorded: StepRecord | None) -> bool:
    """Whether no earlier attempt can have called this step."""
    claim = call.claim
    if claim.is_first_attempt or _is_denial(recorded):
        return True
    return recorded is None and not earlier(claim, call.step_name, call.downstream, None).may_have_begun


def since_first_call(call: EffectCall, recorded: StepRecord | None, start: StepRecord) -> StepRecord:
    """A start that is about to be recorded, with the time before which the step was not called."""
    if is_untouched(call, recorded):
        return replace(start, first_call_ticks=call.claim.reserved.now_ticks)
    return start if recorded is None else replace(start, first_call_ticks=recorded.first_call_ticks)


def _is_denial(recorded: StepRecord | None) -> bool:
    return recorded is not None and recorded.state is StepState.NOT_APPLIED


def note_denied(call: EffectCall, started_at_ms: int | None = None) -> None:
    """Notes a step that certainly was not carried out by this attempt or an earlier one."""
    call.claim.note(not_called(call.claim, call.step_name, call.downstream, started_at_ms))


def not_called(claim: Claim, name: str, at: Downstream, at_ms: int | None = None) -> StepRecord:
    """The record of a step that certainly was not carried out up to now.

    At a repeatable downstream the next call leaves no record of its start: an attempt that is interrupted
    counts as one that called it (`claim_of`).
    """
    step = StepRecord(name, StepState.NOT_APPLIED, at.name, started_at_ms=at_ms, declared=at.declared)
    return step if at.is_unrepeatable else replace(step, first_call_ticks=claim.reserved.now_ticks)


def note_unreached(claim: Claim) -> None:
    """Notes the steps that a failed attempt did not call, where no earlier attempt can have called them.

    Asked once the claim has ended: what its handler left behind begins no more calls.
    """
    now_ticks = claim.reserved.now_ticks
    for step in tuple(claim.steps.values()):
        if step.state is StepState.NOT_APPLIED and step.first_call_ticks not in (None, now_ticks):
            claim.note(replace(step, first_call_ticks=now_ticks))
    if not claim.is_first_attempt or claim.declared is None:
        return
    in_doubt = {pattern_of(name) for name in tuple(claim.used_names) if name not in claim.steps}
    for name, at in claim.declared.steps.items():
        if name not in in_doubt and name not in claim.steps and not at.is_unrepeatable:
            claim.note(not_called(claim, name, at))


def note_doubts(claim: Claim) -> None:
    """Notes every step that may have been called without a record: a failed key keeps what it knows.

    A person may let it run again. Then these records are all that tells of its calls, and the ledger's time
    of the first reservation is no longer known (I15): each keeps it.
    """
    _note_untold(claim)
    since = claim.reserved.first_reserved_ticks or claim.reserved.now_ticks
    for step in tuple(claim.steps.values()):
        is_open = step.state is not StepState.NOT_APPLIED and step.result is None
        if is_open and step.first_call_ticks is None:
            claim.note(replace(step, first_call_ticks=since))


def _note_untold(claim: Claim) -> None:
    declaration = decode(claim.first_declared)
    if declaration is None:
        return
    for one in untold(declaration):
        if one.name not in claim.steps:
            declared = text_of(declaration.places[one.downstream].capability)
            claim.note(StepRecord(one.name, StepState.CALLED, one.downstream, declared=declared))
    if declaration.kind is HandlerKind.OPAQUE and OPAQUE_STEP not in claim.steps:
        was_called = not claim.is_first_attempt or OPAQUE_STEP in claim.used_names
        state = StepState.STARTED if was_called else StepState.NOT_APPLIED
        claim.note(StepRecord(OPAQUE_STEP, state, claim.surface.opaque_at.name))


def note_doubt(call: EffectCall, started_at_ms: int | None = None) -> None:
    """Puts on record which step a person must find out about."""
    name, at = call.step_name, call.downstream
    step = StepRecord(name, StepState.STARTED, at.name, None, None, started_at_ms, at.declared)
    known = call.claim.steps.get(call.step_name)
    if known is not None:
        first_ms = started_at_ms if known.started_at_ms is None else known.started_at_ms
        declared = declared_text(call.claim, name, at, known)
        step = replace(step, resource=known.resource, started_at_ms=first_ms, declared=declared)
        step = replace(step, first_call_ticks=known.first_call_ticks)
    call.claim.note(step)


def note_done(call: EffectCall, result: Any, started_at_ms: int | None) -> None:
    """Keeps what a step returned, to be recorded with the next write."""
    claim, resource, body, at = call.claim, resource_of(result), _stored(call, result), call.downstream
    claim.note(StepRecord(call.step_name, _DONE, at.name, body, resource, started_at_ms, at.declared))
    if claim.untold_at_ms == started_at_ms:
        claim.untold_at_ms = None
    if claim.resource is None:
        claim.resource = resource


def _stored(call: EffectCall, result: Any) -> bytes | None:
    """A result as it is stored, or None if it would come back as something else."""
    codec = call.callee.codec
    try:
        body = codec.encode(result)
    except UsageError:
        return step_values.encode(result)
    is_same = codec.comes_back(result, body) and not step_values.is_typed(body)
    return body if is_same else step_values.encode(result)
