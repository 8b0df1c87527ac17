"""The effect flow: call a downstream once per key and step, whatever earlier attempts did.

Every outside call of a handler goes through here. Must never call a downstream that an earlier attempt may
have called, unless `model.downstream` says so; must never drop what a call returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from oncegate.commit.operations import RecordProgress, Renew
from oncegate.errors import ClaimLost, OutcomeUnknown, UsageError
from oncegate.gate.codec.callable_info import callee_of
from oncegate.gate.codec.introspection import was_refused
from oncegate.gate.driver.requests import Flow, Invoke, NotCalled
from oncegate.gate.flows.downstream_turns import StillUnderWay, note_reach, take_turn
from oncegate.gate.flows.effect_notes import (
    EffectCall,
    note_call,
    note_denied,
    note_done,
    note_doubt,
    note_failed_call,
    note_wait,
    since_first_call,
)
from oncegate.gate.flows.key_injection import (
    count_if_not_passed,
    current_step_key,
    put_back,
    tell_if_not_passed,
    with_key,
)
from oncegate.gate.flows.probe_log import NOTHING_FOUND, holds, no_answer, record_answer
from oncegate.gate.flows.recovery import (
    THIS_DATABASE,
    declared_text,
    earlier,
    last_call_ticks,
    must_record_start,
    opaque_start,
    recorded_result,
    refuse_elsewhere,
    refuse_unnamed,
)
from oncegate.gate.runtime.claim import Claim, checked
from oncegate.gate.runtime.context import GateContext, check_takes_writes
from oncegate.gate.runtime.resources import readable, resource_of
from oncegate.model.declarations import OPAQUE_STEP, text_of
from oncegate.model.downstream import SecondCall, plan_after_not_found, plan_second_call
from oncegate.model.keys import check_step_name
from oncegate.store import Renewal, Statement, StepRecord, StepRecords, StepState

_DONE: Final = StepState.DONE


class ProbeUnclear(OutcomeUnknown):
    """A probe's answer says neither what the key owns nor that it owns nothing."""


class TwoResources(OutcomeUnknown):
    """The downstream says that one key owns several resources; a person must look."""


def effect_flow(call: EffectCall) -> Flow[Any]:
    """Runs one effect, or returns what it already did."""
    gate, claim, step, at = call.gate, call.claim, call.step_name, call.downstream
    key = claim.key.step(step)
    recorded = claim.begin_step(step)
    if recorded is not None and _is_settled(call, recorded):
        if recorded.downstream == THIS_DATABASE:  # a write, which has no result that a call would have
            refuse_elsewhere(claim, step, at.name, recorded)
        if claim.resource is None:
            claim.resource = recorded.resource
        return recorded_result(recorded, call.callee.codec)
    if not claim.is_first_attempt:
        refuse_unnamed(gate, claim, step, at.name)
    if gate.circuits.known or not claim.is_first_attempt:
        _take_turn(call)
    try:
        if not claim.is_first_attempt:
            found = yield from _look_before_call(call, recorded)
            if found is not _NOTHING:
                return found
        if _must_record_start(call, recorded):
            yield from _record_start(call, recorded)
        result, passed, started_at_ms = yield from _call(call, key, recorded)
    finally:
        gate.circuits.end(at.name, claim.entry_id)
    if recorded is not None:
        _refuse_second_resource(call, recorded, result)
    note_done(call, result, started_at_ms)
    if at.is_unrepeatable:  # the only one worth a commit of its own
        yield from save_steps(gate, claim)
    gate.crashpoints.hit("step.after")
    if not passed:
        tell_if_not_passed(gate, claim, step, at)
    return result


def _must_record_start(call: EffectCall, recorded: StepRecord | None) -> bool:
    """Whether a call's start goes on record first; a person's word that nothing happened ends with it."""
    if call.downstream.is_unrepeatable:
        return True
    if recorded is not None and recorded.state is StepState.NOT_APPLIED:
        is_ours = recorded.first_call_ticks is not None and recorded.downstream == call.downstream.name
        if not is_ours:
            return True
    return must_record_start(call.claim, call.step_name, call.downstream, recorded)


def _is_settled(call: EffectCall, recorded: StepRecord) -> bool:
    """A finished step need not be looked into again, unless its result was lost and can be had again."""
    if recorded.state is not StepState.DONE:
        return False
    return recorded.result is not None or call.downstream.is_unrepeatable


def opaque_flow(
    gate: GateContext, claim: Claim, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Flow[Any]:
    """Runs a function that knows nothing of the gate, as one effect whose start is the reservation."""
    at, callee = claim.surface.opaque_at, callee_of(function)
    call = EffectCall(gate, claim, at, OPAQUE_STEP, function, arguments, {}, callee)
    recorded = claim.begin_step(OPAQUE_STEP)
    if recorded is not None and _is_settled(call, recorded):
        claim.resource = recorded.resource
        return recorded_result(recorded, callee.codec)
    _take_turn(call)
    try:
        if not claim.is_first_attempt:
            found = yield from _look_before_call(call, opaque_start(claim, recorded))
            if found is not _NOTHING:
                return found
            if _must_record_start(call, recorded):
                yield from _record_start(call, recorded)
        result, passed, _ = yield from _call(call, claim.key.step(OPAQUE_STEP), recorded)
    finally:
        gate.circuits.end(at.name, claim.entry_id)
    if not passed:
        count_if_not_passed(gate, claim, OPAQUE_STEP, at)
    return result


def _take_turn(call: EffectCall) -> None:
    """Takes a turn at the downstream; a first attempt that gets none certainly did not call."""
    try:
        take_turn(call.gate, call.claim, call.downstream)
    except StillUnderWay:
        if call.claim.is_first_attempt:
            note_denied(call)
        raise


_NOTHING: Final = object()


def _look_before_call(call: EffectCall, recorded: StepRecord | None) -> Flow[Any]:
    """Decides about a call that may be the second one; returns what is found, or nothing to call."""
    claim, where = call.claim, f"{call.step_name} at {call.downstream.name}"
    if recorded is not None and recorded.state is StepState.NOT_APPLIED:
        return _NOTHING
    refuse_elsewhere(claim, call.step_name, call.downstream.name, recorded)
    before = earlier(claim, call.step_name, call.downstream, recorded)
    last_ticks = last_call_ticks(claim, recorded)
    doubt = claim.doubt(before.may_have_begun, last_ticks, call.gate.clock.wall_ms(), recorded)
    plan = plan_second_call(before.capability, doubt)
    if plan is SecondCall.PERSON:
        note_doubt(call)
        raise OutcomeUnknown(f"{where} may have happened and cannot be asked about")
    if plan is SecondCall.CALL_AGAIN:
        return _NOTHING
    found = yield from _ask(call)
    if found is not None:
        found = _as_declared(call, found)
        _refuse_second_resource(call, recorded, found)
        note_done(call, found, None if recorded is None else recorded.started_at_ms)
        yield from _tell(call, holds(resource_of(found)))
        call.gate.crashpoints.hit("step.after")
        return found
    if recorded is not None and recorded.state is _DONE:
        raise OutcomeUnknown(f"{where} is on record as done, but asked, nothing was found")
    if plan_after_not_found(before.capability, doubt) is SecondCall.WAIT:
        note_wait(call, recorded, text_of(before.capability), last_ticks)
        raise StillUnderWay(
            f"{where}: asked, nothing found, but an earlier request may still be under way", call.claim
        )
    yield from _tell(call, NOTHING_FOUND)
    return _NOTHING


def _tell(call: EffectCall, answer: str) -> Flow[None]:
    """Puts on record what the downstream said; it changes nothing but the history that people read."""
    yield from record_answer(call.gate, call.claim, (call.downstream.name, call.step_name), answer)


def _ask(call: EffectCall) -> Flow[Any]:
    downstream = call.downstream
    if downstream.probe is None:
        raise UsageError(f"downstream {downstream.name} has no probe")
    call.gate.crashpoints.hit("probe.before")
    probe = Invoke(downstream.probe, (call.claim.key.step(call.step_name),))
    try:
        answer = yield probe
    except Exception as error:
        note_reach(call.gate, call.claim, call.downstream, error)
        if not isinstance(error, NotCalled):
            yield from _tell(call, no_answer(error))
        raise
    call.gate.circuits.answered(downstream.name)
    call.gate.crashpoints.hit("probe.after")
    if isinstance(answer, (list, tuple)):
        if len(answer) > 1:
            note_doubt(call)
            raise TwoResources(f"{downstream.name} holds {len(answer)} resources for {call.step_name}")
        answer = answer[0] if answer else None
    _refuse_unclear(call, answer)
    return answer


def _refuse_unclear(call: EffectCall, answer: Any) -> None:
    """A yes, a no, an empty text or an error that was returned names no resource: nothing is guessed."""
    is_empty = isinstance(answer, (str, bytes, dict)) and not answer
    if is_empty or isinstance(answer, (bool, BaseException)):
        note_doubt(call)
        raise ProbeUnclear(
            f"the probe of {call.downstream.name} answered {_shown(answer)} for {call.step_name}: "
            "neither what the key owns nor None"
        )


def _refuse_second_resource(call: EffectCall, recorded: StepRecord | None, result: Any) -> None:
    """One key owns one thing (A9): what comes back now is compared with what is on record."""
    if recorded is None or (first := recorded.resource) is None:
        return
    second = resource_of(result)
    if second is None or first == second:
        return
    note_doubt(call)
    raise TwoResources(
        f"{call.downstream.name} holds 2 resources for {call.step_name}: {first[:80]} and {second[:80]}"
    )


def _shown(answer: Any) -> str:
    return readable(repr(answer))[:60]


def _as_declared(call: EffectCall, found: Any) -> Any:
    """A probe's answer as the type that the call itself returns, where it can be read as that."""
    codec = call.callee.codec
    try:
        return codec.decode(codec.encode(found))
    except UsageError:
        return found


def _record_start(call: EffectCall, recorded: StepRecord | None) -> Flow[None]:
    name, at, now_ms = call.step_name, call.downstream, call.gate.clock.wall_ms()
    state = StepState.STARTED if at.is_unrepeatable else StepState.CALLED
    declared = declared_text(call.claim, name, at, recorded)
    start = StepRecord(name, state, at.name, started_at_ms=now_ms, declared=declared)
    start = since_first_call(call, recorded, start)
    call.claim.surface.declaring.learn(name, at)
    # Not noted for the next write, whosesoever that is: another step's could bring it after this one's end.
    yield from save_steps(call.gate, call.claim, (), start)
    call.claim.steps[call.step_name] = start
    call.gate.crashpoints.hit("start.after")


def _call(call: EffectCall, key: str, recorded: StepRecord | None) -> Flow[tuple[Any, bool, int]]:
    """Makes the call; returns its result, whether it took the key, and when it was made."""
    gate, claim = call.gate, call.claim
    note_call(call, recorded)
    claim.called = True  # before the look: whoever ends the claim meanwhile sees the one, or we the other
    claim.check_usable()
    if gate.clock.ticks_ms() >= claim.valid_until_ms:
        yield from _keep_claim(gate, claim)
    passed, arguments, keywords = with_key(call.callee.key_parameters, call.arguments, call.keywords, key)
    claim.untold_at_ms = started_at_ms = gate.clock.wall_ms()
    gate.crashpoints.hit("effect.before")
    token = current_step_key.set(key)
    try:
        result = yield Invoke(call.function, arguments, keywords, is_async=call.callee.is_async)
        gate.circuits.answered(call.downstream.name)
    except BaseException as error:
        note_reach(call.gate, call.claim, call.downstream, error)
        is_refused = was_refused(error, call.function, *arguments, **keywords)
        note_failed_call(call, recorded, error, started_at_ms, is_refused=is_refused)
        raise
    finally:
        put_back(current_step_key, token)
        passed = passed or key in gate.keys_read
        gate.keys_read.discard(key)
    gate.crashpoints.hit("effect.after")
    return result, passed, started_at_ms


def _keep_claim(gate: GateContext, claim: Claim) -> Flow[None]:
    """A worker that was stalled past its lease must not call: another may be at it."""
    asked_at_ms = gate.clock.ticks_ms()
    lease_ms = claim.surface.rule.lease_ms
    if not (yield Renew(Renewal(*claim.id, lease_ms))):
        claim.lost = True
    claim.check_usable()
    claim.valid_until_ms = asked_at_ms + lease_ms


def save_steps(
    gate: GateContext, claim: Claim, writes: tuple[Any, ...] = (), *more: StepRecord
) -> Flow[None]:
    """Records the steps noted so far and `more`, with business writes that belong to them.

    What steps beside this one note meanwhile stays noted (test_steps_side_by_side.py).
    """
    noted = claim.noted()
    progress = StepRecords(*claim.id, (*noted, *more), gate.clock.wall_ms(), writes)
    claim.has_saved_steps = True
    saved = yield RecordProgress(progress)
    claim.forget_saved(noted)
    if not saved:
        claim.lost = True
        raise ClaimLost(f"{claim.key.text}: another worker holds the key now")


def write_step_flow(gate: GateContext, claim: Claim, name: str, writes: Iterable[Statement]) -> Flow[None]:
    """Runs business writes as a named step: they and its record are one transaction."""
    check_step_name(name)
    check_takes_writes(gate)
    kept = checked(writes)
    recorded = claim.begin_step(name)
    if recorded is not None and recorded.state is StepState.DONE:
        return
    if not claim.is_first_attempt:
        refuse_unnamed(gate, claim, name, THIS_DATABASE)
        refuse_elsewhere(claim, name, THIS_DATABASE, recorded)
    step = StepRecord(name, _DONE, THIS_DATABASE, b"null", started_at_ms=gate.clock.wall_ms())
    yield from save_steps(gate, claim, tuple(kept), step)
    claim.steps[name] = step
    gate.crashpoints.hit("step.after")
