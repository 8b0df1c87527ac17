"""How a claim ends: which state an error leads to, and the flows that record it.

Must never settle a claim that may have been lost without showing its fence, and never turn a failure that
may have had an effect into one that is simply tried again.
"""

from __future__ import annotations

import copyreg
from asyncio import CancelledError
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from oncegate.commit.operations import Attach, IsCommitted, Settle, Withdraw
from oncegate.errors import (
    ClaimLost,
    Failed,
    NotApplied,
    OncegateError,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    StoreUnknown,
    UsageError,
)
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.driver.requests import NO_VALUE, Flow, Invoke, ThreadCall, Where
from oncegate.gate.flows.downstream_turns import Resting, StillUnderWay
from oncegate.gate.flows.effect_notes import is_denied, note_doubts, note_unreached
from oncegate.gate.flows.effects import TwoResources
from oncegate.gate.flows.late_results import late_flow
from oncegate.gate.flows.outcome_documents import (
    REASON_LENGTH_MAX,
    describe,
    failure_outcome,
    outcome_of,
)
from oncegate.gate.flows.parking import add
from oncegate.gate.runtime.cache import CachedOutcome
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext, author_of
from oncegate.gate.runtime.not_run_log import NotRunLine, held_reason
from oncegate.gate.runtime.reachability import asked_wait
from oncegate.gate.runtime.recent import Settled
from oncegate.model.backoff import Backoff, spread
from oncegate.model.durations import format_duration
from oncegate.model.states import State
from oncegate.store import Attachment, Settlement, What

ASK_AGAIN: Final = timedelta(seconds=5)  # while an earlier request may still be under way
_UNRECORDABLE: Final = (ClaimLost, StoreUnavailable, StoreUnknown)
_COMMITTED: Final = State.COMMITTED
_WAITING: Final = frozenset({State.HELD, State.UNKNOWN})
_RUN: Final = Verdict.RUN


def _nobody() -> Any:
    """What a claim is in another process: None."""


# An error may carry the claim it is about, and go to another process with it: there nobody holds it.
copyreg.pickle(Claim, lambda _: (_nobody, ()))


def state_after(claim: Claim, error: BaseException) -> State:
    """Decides which state an error of the handler leads to."""
    is_final = isinstance(error, (Failed, *claim.surface.final_errors))
    if is_final and not (claim.in_doubt is not None and claim.is_anothers(error)):
        return State.FAILED
    if isinstance(error, TwoResources):
        return State.HELD
    if isinstance(error, (OutcomeUnknown, NotJoined)) or claim.in_doubt is not None or claim.stands_alone:
        return State.UNKNOWN
    if did_nothing(claim, error):
        return State.HELD if _waited(claim) >= _outer(claim) else State.RETRYABLE
    return State.HELD if claim.reserved.attempt >= claim.surface.rule.tries_max else State.RETRYABLE


def did_nothing(claim: Claim, error: BaseException) -> bool:
    """Whether an attempt certainly came to nothing at the other side: it uses up neither count nor time."""
    if isinstance(error, StillUnderWay):
        return error.claim is claim
    return is_denied(error) and not claim.is_anothers(error)


def _waited(claim: Claim) -> timedelta:
    """Since the first attempt, or since a person let it be tried again, in the ledger's own time."""
    reserved = claim.reserved
    began = max(reserved.first_reserved_ticks, reserved.tried_from_ticks)
    return timedelta(milliseconds=0 if reserved.never_run else reserved.now_ticks - began)


def _outer(claim: Claim) -> timedelta:
    return (claim.surface.rule.retry or Backoff()).outer


def retry_in_ms(claim: Claim, error: BaseException) -> int:
    """How long the key is busy after a failed attempt; 0 where only the caller knows when to try again."""
    retry = claim.surface.rule.retry
    if retry is None or isinstance(error, CancelledError):
        return 0
    share = spread(claim.entry_id, claim.reserved.attempt)
    if isinstance(error, Resting) and error.claim is claim:
        wait = timedelta(seconds=error.retry_after_seconds or 0) * (1 + retry.jitter * share)
    elif did_nothing(claim, error):
        wait = retry.delay_after_nothing(_waited(claim), share)
        if isinstance(error, StillUnderWay):  # its end is known, and near
            wait = min(wait, ASK_AGAIN)
    else:
        wait = retry.delay(claim.reserved.attempt, share)
    return max(wait, timedelta(seconds=asked_wait(error))) // timedelta(milliseconds=1)


def settlement_of(
    gate: GateContext, claim: Claim, state: State, outcome: bytes | None, reason: str | None
) -> Settlement:
    """Puts together everything that ends a claim in one transaction."""
    ends, reserved = state is _COMMITTED or gate.ends(state), claim.reserved
    steps = () if ends else claim.noted()
    nothing_called = not claim.called and reserved.lapsed_at_ticks > 0
    return Settlement(
        claim.entry_id,
        claim.fence,
        reserved.token,
        reserved.key,
        state,
        gate.clock.wall_ms(),
        author_of(gate, claim.surface.rule, claim.arrival),
        outcome,
        reason,
        steps,
        tuple(claim.writes) if state is _COMMITTED else (),
        clear_steps=ends and claim.has_saved_steps,
        last_call_ticks=reserved.lapsed_at_ticks if nothing_called else None,
    )


def settle_failure_flow(gate: GateContext, claim: Claim, error: BaseException) -> Flow[None]:
    """Records that the handler raised; the error itself goes on to the caller."""
    if claim.lost and not claim.committed:
        yield from late_flow(gate, claim)
        _refuse_final(claim, error)
    if claim.committed or claim.lost or isinstance(error, _UNRECORDABLE) or _is_locked(claim, error):
        return  # nothing of ours to record, or nowhere to record it: the lease lapses and is looked into
    yield from _look_for_writes(gate, claim)
    state = state_after(claim, error)
    if state is State.RETRYABLE and _leaves_nothing(claim, error) and (yield from _withdraw_flow(claim)):
        return
    note_unreached(claim)
    if state is State.FAILED:
        note_doubts(claim)
    reason = _reason(claim, state, error)
    outcome = failure_outcome(claim, error) if state is State.FAILED else None
    settlement = settlement_of(gate, claim, state, outcome, reason)
    if state is State.RETRYABLE:
        settlement = _to_be_retried(gate, settlement, claim, error)
    try:
        settled = yield Settle(settlement)
    except StoreError:
        if state is State.FAILED:  # the caller is told so, and need not come again
            _keep_failure(gate, claim, error)
        return  # the handler's own error matters more; the entry stays in flight until it lapses
    claim.recorded = settled
    if not settled:
        yield from late_flow(gate, claim)
        _refuse_final(claim, error)
    elif state is State.FAILED:
        remember(gate, claim, state, outcome, reason)
        gate.sightings.count(claim.surface.rule, What.FAILED)
    elif state in _WAITING:
        _tell_why(gate, claim, state, reason)
        add(gate, claim.surface.name, claim.arrival.tenant, len(claim.arrival.body))
        keep_in_mind(gate, claim, state)
    elif claim.called or not claim.surface.takes_once:
        keep_in_mind(gate, claim, state)


def _leaves_nothing(claim: Claim, error: BaseException) -> bool:
    """Whether an arrival was refused before anything was done, and nothing was done for it before."""
    is_refused = isinstance(error, NotApplied) and error.leaves_nothing and not claim.is_anothers(error)
    has_acted = (claim.called and claim.surface.takes_once) or claim.joined
    return is_refused and claim.is_new and not has_acted


def _withdraw_flow(claim: Claim) -> Flow[bool]:
    """Removes the entry; False where another holds it. A store that is down leaves a lease to lapse."""
    try:
        claim.recorded = yield Withdraw(claim.id)
    except StoreError:
        return True
    return claim.recorded


def _keep_failure(gate: GateContext, claim: Claim, error: BaseException) -> None:
    if claim.lost:
        _refuse_final(claim, error)
    keep_in_mind(gate, claim, State.FAILED)


def _refuse_final(claim: Claim, error: BaseException) -> None:
    """A failure that is not recorded is not reported as final: after a final answer a sender stops."""
    if isinstance(error, (Failed, *claim.surface.final_errors)):
        raise ClaimLost(f"{claim.key.text}: the key is not held here any more; the failure is not recorded")


def _tell_why(gate: GateContext, claim: Claim, state: State, reason: str) -> None:
    """Has a line written about an event that waits for a person from now on."""
    first_ms, name = claim.reserved.received_at_ms, claim.surface.name
    verdict = "hold" if state is State.HELD else "in doubt"
    gate.sightings.why.note(
        NotRunLine(verdict, name, claim.key.digest, claim.label, held_reason(reason), first_ms)
    )


def _to_be_retried(
    gate: GateContext, settlement: Settlement, claim: Claim, error: BaseException
) -> Settlement:
    wait_ms = retry_in_ms(claim, error)
    if isinstance(error, OncegateError) and gate.circuits.is_unwell(claim.surface.name):
        error.retry_after_seconds = wait_ms / 1000
    given_back = int(did_nothing(claim, error))
    return replace(settlement, attempts_given_back=given_back, retry_in_ms=wait_ms)


def _reason(claim: Claim, state: State, error: BaseException) -> str:
    """What the entry says from now on; one that waits for a person says that it was tried often enough."""
    reason = describe(error)
    if state is State.HELD and not isinstance(error, TwoResources):
        attempts = f"gave up after {claim.reserved.attempt} attempts"
        nothing = f"gave up after {format_duration(_outer(claim))} in which nothing could be done"
        reason = f"{nothing if did_nothing(claim, error) else attempts}: {reason}"[:REASON_LENGTH_MAX]
    return reason


def _is_locked(claim: Claim, error: BaseException) -> bool:
    """Whether a user's transaction that is still open holds the entry: writing would wait behind it."""
    return claim.join is not None and not isinstance(error, NotJoined) and claim.join.is_open()


def settle_success_flow(gate: GateContext, claim: Claim, value: Any) -> Flow[Admission]:
    """Records what the handler returned and answers the caller."""
    gate.crashpoints.hit("settle.before")
    body, unstorable = _encode(claim, value)
    if claim.join is not None and not claim.lost:
        yield from _finish_joined(gate, claim, body)
    elif claim.committed:
        yield from _attach(gate, claim, body)
    else:
        yield from _commit(gate, claim, value, body)
    gate.crashpoints.hit("settle.after")
    if unstorable is not None:
        raise unstorable
    return _answer(claim, value, body)


def _encode(claim: Claim, value: Any) -> tuple[bytes, UsageError | None]:
    """Encodes the outcome; one that cannot be stored is recorded as none, and told after the commit."""
    if claim.outcome is not None:
        return claim.outcome, None
    try:
        return claim.surface.codec.encode(value), None
    except UsageError as error:
        told = f"{error}; what it did is done and on record, without a value: a repeat gets None"
        return b"null", UsageError(told)


def _commit(gate: GateContext, claim: Claim, value: Any, body: bytes) -> Flow[None]:
    outcome = outcome_of(claim, body)
    settlement = settlement_of(gate, claim, _COMMITTED, outcome, None)
    if not (yield Settle(settlement)):
        claim.lost = True
        yield from late_flow(gate, claim, value)
        raise ClaimLost(f"{claim.key.text}: another worker holds the key now; nothing was written here")
    claim.committed = True
    remember(gate, claim, _COMMITTED, outcome, None, at_ms=settlement.at_ms)


def _attach(gate: GateContext, claim: Claim, body: bytes) -> Flow[bool]:
    """Gives a committed entry its value; False if there is no such entry."""
    if claim.outcome is not None:
        return True
    gate.crashpoints.hit("attach.before")
    outcome = outcome_of(claim, body)
    attached: bool = yield Attach(Attachment(*claim.id, outcome))
    if attached:
        remember(gate, claim, State.COMMITTED, outcome, None)
    return attached


def expect_value(gate: GateContext, claim: Claim) -> None:
    """It commits before its handler has returned: repeats in this process may wait for the value."""
    if not claim.ended or claim.left is not None:
        gate.value_follows[claim.entry_id] = claim


def expect_no_value(gate: GateContext, claim: Claim) -> None:
    """Its flow has ended: only a thread whose task was cancelled may still return a value."""
    if claim.left is None:
        gate.value_follows.pop(claim.entry_id, None)
    else:
        claim.left.when_ended(lambda call: _attach_left(gate, claim, call))


def _attach_left(gate: GateContext, claim: Claim, call: ThreadCall) -> None:
    """In the thread itself, without a waiting task: only a committed entry takes the value."""
    try:
        if claim.entry_id in gate.value_follows and call.value is not NO_VALUE:
            outcome = outcome_of(claim, _encode(claim, call.value)[0])
            if gate.commits.submit(Attach(Attachment(*claim.id, outcome))):
                remember(gate, claim, _COMMITTED, outcome, None)
    except StoreError:
        return  # as after a crash: all is there but the value
    finally:
        gate.value_follows.pop(claim.entry_id, None)


class NotCommitted(UsageError):
    """The user's own transaction was rolled back or left open: nothing of it is recorded."""


class NotJoined(NotCommitted):
    """The handler gave its transaction but never awaited the join: its writes may stand by themselves."""


def _finish_joined(gate: GateContext, claim: Claim, body: bytes) -> Flow[None]:
    """Makes sure that the user's own transaction was committed before the handler returned.

    Where there is one writer, read beside it: a transaction that is still open holds its lock. Elsewhere
    attaching the value says whether there is something committed to attach it to.
    """
    if not claim.joined:
        raise NotJoined("once.commit(tx=…) was not carried out: await it before the transaction commits")
    if gate.commits.store.capabilities.one_writer:
        ended = yield Invoke(_look_at, (gate, claim), where=Where.STATEMENT)
        claim.committed = ended and (yield from _attach(gate, claim, body))
    elif claim.outcome is not None:
        claim.committed = yield IsCommitted(claim.id)
    else:
        claim.committed = yield from _attach(gate, claim, body)
    if claim.committed:
        return
    yield from _look_for_writes(gate, claim)
    if claim.stands_alone:
        raise NotCommitted(
            "the transaction given to once.commit(tx=…) was committed without the outcome: a savepoint "
            "around once.commit was rolled back; what else it wrote stands alone, a person has to look"
        )
    if not claim.committed:
        raise NotCommitted(
            "the handler returned before the transaction given to once.commit(tx=…) was committed; "
            "commit it inside the handler"
        )


def _look_for_writes(gate: GateContext, claim: Claim) -> Flow[None]:
    """Finds out whether a joined transaction was committed; asked where its outcome is not there."""
    if claim.joined and claim.join is not None and (mark := claim.join.mark) is not None:
        claim.stands_alone = yield Invoke(_was_committed, (gate, mark), where=Where.STATEMENT)


def _was_committed(gate: GateContext, mark: str) -> bool:
    with gate.commits.store.look() as session:
        return session.was_committed(mark)


def _look_at(gate: GateContext, claim: Claim) -> bool:
    with gate.commits.store.look() as session:
        return session.are_committed([claim.id])[0]


def _answer(claim: Claim, value: Any, body: bytes) -> Admission:
    codec = claim.surface.codec
    shown = codec.decode(body) if claim.outcome is not None else codec.as_replayed(value, body)
    return Admission(_RUN, claim.key.text, shown, resource=claim.resource)


def remember(
    gate: GateContext, claim: Claim, state: State, outcome: bytes | None, why: str | None, *, at_ms: int = 0
) -> None:
    """Keeps a final outcome in memory for quick replays."""
    if state is _COMMITTED or gate.ends(state):
        first_at_ms, number = claim.reserved.received_at_ms, claim.entry_id
        again = claim.fence != number
        known = CachedOutcome(number, state, claim.fingerprint, outcome, why, first_at_ms, again)
        gate.cache.put(claim.key.digest, known)
    claim.recorded = True
    keep_in_mind(gate, claim, state, at_ms)


def keep_in_mind(gate: GateContext, claim: Claim, state: State, at_ms: int = 0) -> None:
    """Keeps an event that was called, in case the ledger loses it."""
    steps = tuple(claim.steps.values()) if claim.steps else ()
    at_ms = at_ms or gate.clock.wall_ms()
    gate.recent.note(
        Settled(claim.surface, claim.arrival, claim.reserved, state, at_ms, claim.resource, steps)
    )
