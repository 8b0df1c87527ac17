"""The admitting flow: from an arrival to a verdict, with the handler run in between where it may.

A failure or a cancellation is recorded. What ends the process (SystemExit, KeyboardInterrupt) is not: like
a crash, it leaves a lease that lapses and is looked into.

The only way a handler is ever reached: by a task, a thread, a worker or an adapter.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.commit.operations import Reserve, Settle
from oncegate.errors import ClaimLost, StoreRejected, StoreUnknown
from oncegate.gate.admission import Admission, Verdict, from_busy, from_memory, from_reserved
from oncegate.gate.declared import Declared
from oncegate.gate.driver.awaiting import check_ended
from oncegate.gate.driver.requests import Flow, Invoke, Pause, Where
from oncegate.gate.flows.conflicts import conflict_flow
from oncegate.gate.flows.downstream_turns import StillUnderWay
from oncegate.gate.flows.identity import expired
from oncegate.gate.flows.late_results import late_flow
from oncegate.gate.flows.outcome_documents import outcome_of
from oncegate.gate.flows.parking import room_flow
from oncegate.gate.flows.record_only import Record, recorded
from oncegate.gate.flows.recovery import refuse_unfinished
from oncegate.gate.flows.release_on_cancel import as_it_was, give_back_flow
from oncegate.gate.flows.settlement import (
    NotCommitted,
    expect_no_value,
    keep_in_mind,
    remember,
    settle_failure_flow,
    settle_success_flow,
    settlement_of,
)
from oncegate.gate.flows.transactions import OpenTransaction, begin_flow
from oncegate.gate.runtime.cache import CachedOutcome
from oncegate.gate.runtime.claim import Claim, claim_of
from oncegate.gate.runtime.context import GateContext, author_of
from oncegate.gate.runtime.resources import brought_by
from oncegate.gate.runtime.tracing import link_parked_flow
from oncegate.gate.surface import Surface
from oncegate.model.states import Decision, State
from oncegate.model.surface import Arrival, OnBusy
from oncegate.model.trace import Context
from oncegate.store import Reservation, Reserved, What

FIRST_WAIT_SECONDS: Final = 0.002
LONGEST_WAIT_SECONDS: Final = 0.1
NEVER: Final = 2**63 - 1
EXPIRED: Final = "reserved too long after its key template was compared with the ledger; nothing was called"

# Reading a member from its class takes longer than the comparisons that every event passes.
_RUN: Final = Decision.RUN
_BUSY: Final = Decision.BUSY
_RECOVER: Final = Decision.RECOVER
_CONFLICT: Final = Decision.CONFLICT
_PARKED: Final = frozenset({Decision.QUARANTINE, Decision.HOLD})

Start = Callable[[Claim], Flow[Any]]


_TRIED_AGAIN: Final = frozenset({Decision.RETRY, Decision.RECOVER, Decision.BUSY})


class ClaimAttempt(Struct, frozen=True):
    """An arrival on its way through a surface, and how its handler is started once it may run."""

    surface: Surface
    arrival: Arrival
    declared: Declared
    start: Start
    by_worker: bool = False
    context: Context | None = None
    only_records: bool = False
    looked_at_ms: int = (
        0  # when memory was asked, by this process's ticks, and had no answer; 0 if it was not
    )
    at_once: bool = False  # a person asked for it: no wait is obeyed
    until_ticks: int = NEVER  # the ledger's time up to which the key may be relied on
    from_lane: bool = False  # it was accepted before, and is run now


def admit_flow(gate: GateContext, attempt: ClaimAttempt) -> Flow[Admission]:
    """Reserves, runs, settles; or says why not."""
    arrival, surface = attempt.arrival, attempt.surface
    if not attempt.looked_at_ms and (known := remembered_replay(gate, attempt)) is not None:
        return known
    gate.crashpoints.hit("reserve.before")
    # A lease counts from before the question, not after; what was read earlier only makes it shorter.
    asked_at_ms, began_us = attempt.looked_at_ms or gate.clock.ticks_ms(), gate.clock.elapsed_us()
    wanted = reservation_of(gate, attempt)
    may_park = arrival.quarantine is not None or surface.rule.hold is not None
    if (may_park or surface.caller_retries) and not attempt.by_worker:
        yield from room_flow(gate, surface, wanted)
    question = (Record if attempt.only_records else Reserve)(wanted)
    try:
        reserved: Reserved = yield question
    except CancelledError:
        yield from give_back_flow(gate, surface, arrival, question)
        raise
    gate.cache.confirmed_ms = asked_at_ms
    if attempt.from_lane or attempt.by_worker:
        _count(gate, attempt, reserved, began_us)
    else:
        gate.sightings.answered(surface.rule, arrival, reserved, began_us)
    if attempt.only_records and reserved.decision is _RUN:
        return recorded(gate, arrival, reserved)
    if not reserved.decision.claims:
        reserved = _busy_while_value_follows(gate, reserved)
        if reserved.decision is _BUSY and surface.rule.on_busy is OnBusy.WAIT:
            reserved, asked_at_ms = yield from _wait_for_key(gate, attempt, reserved)
    if reserved.decision.claims:
        return (yield from _run(gate, attempt, reserved, asked_at_ms, question.loop))
    _remember_final(gate, arrival, reserved)
    return (yield from _not_claimed(gate, attempt, reserved))


def _count(gate: GateContext, attempt: ClaimAttempt, reserved: Reserved, began_us: int = 0) -> None:
    """Counts an arrival. An accepted event that is tried again did not arrive again."""
    rule, decision = attempt.surface.rule, reserved.decision
    if attempt.from_lane and decision in _TRIED_AGAIN:
        if decision is Decision.RECOVER:
            gate.sightings.count(rule, What.RECONCILED)
    elif not attempt.by_worker:
        gate.sightings.answered(rule, attempt.arrival, reserved, began_us)


def remembered_replay(gate: GateContext, attempt: ClaimAttempt) -> Admission | None:
    """What memory answers to an attempt, if anything."""
    return replay_from_memory(gate, attempt.surface, attempt.arrival, attempt.by_worker)


def replay_from_memory(
    gate: GateContext,
    surface: Surface,
    arrival: Arrival,
    by_worker: bool = False,
    now_ms: int | None = None,
) -> Admission | None:
    """The answer to an arrival whose outcome this process has seen: final is final, no store is needed."""
    known = gate.cache.get(arrival.key.digest, now_ms)
    if known is None or known.fingerprint != arrival.fingerprint:
        return None
    if not by_worker:
        gate.sightings.remembered(surface.rule, known, arrival.key, arrival.label)
    return from_memory(arrival.key, known, surface.codec)


def counted_recovery(gate: GateContext, surface: Surface, flow: Flow[Admission]) -> Flow[Admission]:
    """A worker's attempt, counted unless it has to come again later or another process is at it."""
    is_taken_up = True
    try:
        admission = yield from flow
        is_taken_up = admission.verdict is not Verdict.BUSY
        return admission
    except StillUnderWay:
        is_taken_up = False
        raise
    finally:
        if is_taken_up:
            gate.sightings.count(surface.rule, What.RECONCILED)


def _wait_for_key(
    gate: GateContext, attempt: ClaimAttempt, reserved: Reserved
) -> Flow[tuple[Reserved, int]]:
    """Asks again until the key is free or time is up; returns the answer and when it was asked for."""
    wait, left = FIRST_WAIT_SECONDS, attempt.surface.rule.busy_wait_max.total_seconds()
    asked_at_ms = gate.clock.ticks_ms()
    while reserved.decision is Decision.BUSY and left > 0:
        yield Pause(min(wait, left))
        left -= wait
        wait = min(wait * 2, LONGEST_WAIT_SECONDS)
        asked_at_ms = gate.clock.ticks_ms()
        question = Reserve(reservation_of(gate, attempt))
        try:
            reserved = _busy_while_value_follows(gate, (yield question))
        except CancelledError:
            yield from give_back_flow(gate, attempt.surface, attempt.arrival, question)
            raise
    return reserved, asked_at_ms


def _busy_while_value_follows(gate: GateContext, reserved: Reserved) -> Reserved:
    """A handler of this process that has committed in a block, and has not returned, is at work still."""
    claim = gate.value_follows.get(reserved.entry_id)
    if claim is None or claim.is_deserted:
        return reserved
    if reserved.decision is not Decision.REPLAY or reserved.outcome is not None:
        return reserved
    return replace(reserved, decision=_BUSY, retry_after_ms=int(LONGEST_WAIT_SECONDS * 1000))


def reservation_of(gate: GateContext, attempt: ClaimAttempt) -> Reservation:
    """Makes the request for a key, with a token that no other claim has."""
    arrival, rule = attempt.arrival, attempt.surface.rule
    return Reservation(
        arrival.key.digest,
        arrival.tenant,
        rule.name,
        arrival.label,
        arrival.fingerprint,
        arrival.body,
        gate.clock.wall_ms(),
        rule.lease_ms,
        rule.tries_max,
        gate.new_token(),
        arrival.quarantine,
        author_of(gate, rule, arrival),
        rule.hold,
        arrival.content,
        at_once=attempt.at_once,
        deaths_max=rule.deaths_max,
        also=arrival.also,
        declared=attempt.declared.text,
        keep_ms=rule.keep_ms_of(arrival.tenant) if rule.retention_by_partner else rule.keep_ms,
    )


def wanted_again(gate: GateContext, surface: Surface, arrival: Arrival) -> Reservation:
    """Makes the request for a key that a ledger has lost; nothing is started by it."""
    return reservation_of(gate, ClaimAttempt(surface, arrival, surface.declaring.now, _never))


def _never(claim: Claim) -> Flow[Any]:
    raise AssertionError("what a ledger lost is written down, not run")


def _run(
    gate: GateContext,
    attempt: ClaimAttempt,
    reserved: Reserved,
    asked_at_ms: int,
    loop: AbstractEventLoop | None,
) -> Flow[Admission]:
    arrival = attempt.arrival
    claim = claim_of(attempt.surface, arrival, reserved, attempt.declared)
    if reserved.now_ticks >= attempt.until_ticks:
        yield Settle(as_it_was(gate, claim, EXPIRED))
        raise expired(gate, attempt.surface)
    claim.valid_until_ms = asked_at_ms + attempt.surface.rule.lease_ms
    claim.label, claim.loop = arrival.label, loop
    gate.crashpoints.hit("recover.after" if reserved.decision is _RECOVER else "reserve.after")
    gate.leases.watch(claim)
    try:
        try:
            # Over before its end is told: a thread or task that it left behind may call nothing after that.
            try:
                value = yield from attempt.start(claim)
                check_ended(claim.given)
                if not claim.is_first_attempt:
                    refuse_unfinished(claim)
            finally:
                claim.ended = True
        except (Exception, CancelledError) as error:
            yield from settle_failure_flow(gate, claim, error)
            raise
        # What fails from here on is not the handler's failure: it has acted. Only a refused business write,
        # or a user's transaction that was not committed, is one; anything else leaves the claim to lapse
        # and be looked into.
        try:
            admission = yield from settle_success_flow(gate, claim, value)
            if (rule := attempt.surface.rule).target is not None:
                gate.sightings.brought(rule, arrival, brought_by(claim, value), claim.entry_id)
            return admission
        except (StoreRejected, NotCommitted) as error:
            yield from settle_failure_flow(gate, claim, error)
            raise
    finally:
        if not claim.recorded and (claim.called or not attempt.surface.takes_once):
            keep_in_mind(gate, claim, State.IN_FLIGHT)
        gate.leases.release(claim)
        if gate.value_follows or claim.left is not None:
            expect_no_value(gate, claim)


def _remember_final(gate: GateContext, arrival: Arrival, reserved: Reserved) -> None:
    if reserved.decision is Decision.REPLAY and gate.ends(reserved.state) and reserved.outcome is not None:
        known = CachedOutcome(
            reserved.entry_id,
            reserved.state,
            arrival.fingerprint,
            reserved.outcome,
            reserved.reason,
            reserved.received_at_ms,
        )
        gate.cache.put(reserved.judged or arrival.key.digest, known)


def same_database_flow(
    gate: GateContext, attempt: ClaimAttempt, start: Callable[[Claim, OpenTransaction], Flow[Any]]
) -> Flow[Admission]:
    """Reserves, runs and settles in one transaction of the ledger's database."""
    if (known := remembered_replay(gate, attempt)) is not None:
        return known
    arrival = attempt.arrival
    transaction = OpenTransaction(gate)
    if not (wanted := reservation_of(gate, attempt)).runs and not attempt.by_worker:
        yield from room_flow(gate, attempt.surface, wanted)
    gate.crashpoints.hit("reserve.before")
    yield from begin_flow(transaction)
    claim: Claim | None = None
    try:
        reservation = replace(reservation_of(gate, attempt), ends_here=True)
        asked_at_ms = gate.clock.ticks_ms()
        reserved = yield Invoke(transaction.reserve, (reservation,), where=Where.STATEMENT)
        gate.cache.confirmed_ms = asked_at_ms
        _count(gate, attempt, reserved)
        if not reserved.decision.claims:
            yield Invoke(transaction.commit, where=Where.STATEMENT)
            _remember_final(gate, arrival, reserved)
            return (yield from _not_claimed(gate, attempt, reserved))
        if reserved.now_ticks >= attempt.until_ticks:
            raise expired(gate, attempt.surface)
        claim = claim_of(attempt.surface, arrival, reserved)
        gate.crashpoints.hit("reserve.after")
        value = yield from start(claim, transaction)
        admission = yield from _settle_together(gate, claim, transaction, value)
        if (rule := attempt.surface.rule).target is not None:
            gate.sightings.brought(rule, arrival, brought_by(claim, value), claim.entry_id)
        return admission
    except GeneratorExit:
        transaction.rollback()
        raise
    except BaseException as error:
        yield Invoke(transaction.rollback, where=Where.STATEMENT)
        is_ending = not isinstance(error, (Exception, CancelledError))
        if is_ending:
            raise
        if claim is not None and isinstance(error, ClaimLost):
            yield from late_flow(gate, claim)
        elif claim is not None and not isinstance(error, StoreUnknown):
            yield from _record_undone(gate, attempt, error, claim)
        raise


def _not_claimed(gate: GateContext, attempt: ClaimAttempt, reserved: Reserved) -> Flow[Admission]:
    if attempt.context is not None and reserved.decision in _PARKED and not reserved.received_at_ms:
        yield from link_parked_flow(gate, reserved.entry_id, attempt.context)
    if reserved.decision is _BUSY and _is_acknowledged(attempt):
        return from_busy(attempt.arrival.key, reserved)
    if reserved.decision is not _CONFLICT:
        arrival = attempt.arrival
        admission = from_reserved(arrival.key, reserved, attempt.surface.codec, arrival.skew_ms)
        if reserved.decision in _PARKED and not gate.commits.store.capabilities.keeps_bodies:
            return replace(admission, is_kept=False)
        is_down = admission.delayed and gate.circuits.is_unwell(attempt.surface.name)
        return replace(admission, is_down=True) if is_down else admission
    wanted = as_judged(reservation_of(gate, attempt), reserved)
    return (yield from conflict_flow(gate, attempt.surface, wanted, reserved.entry_id, attempt.context))


def as_judged(wanted: Reservation, reserved: Reserved) -> Reservation:
    """A reservation under the key that was judged, and no other."""
    return replace(wanted, key=reserved.judged or wanted.key, also=()) if wanted.also else wanted


def _is_acknowledged(attempt: ClaimAttempt) -> bool:
    """Whether the sender of a busy key may forget its event; a worker may not: it comes again itself."""
    return attempt.surface.rule.on_busy is OnBusy.ACKNOWLEDGE and not attempt.by_worker


def _settle_together(
    gate: GateContext, claim: Claim, transaction: OpenTransaction, value: Any
) -> Flow[Admission]:
    check_ended(transaction.given)
    codec = claim.surface.codec
    body = claim.outcome if claim.outcome is not None else codec.encode(value)
    outcome = outcome_of(claim, body)
    gate.crashpoints.hit("settle.before")
    settlement = settlement_of(gate, claim, State.COMMITTED, outcome, None)
    yield Invoke(transaction.settle_and_commit, (settlement,), where=Where.STATEMENT)
    remember(gate, claim, State.COMMITTED, outcome, None)
    gate.crashpoints.hit("settle.after")
    return Admission(Verdict.RUN, claim.key.text, codec.as_replayed(value, body), resource=claim.resource)


def _record_undone(
    gate: GateContext, attempt: ClaimAttempt, error: BaseException, undone: Claim
) -> Flow[None]:
    """The transaction was undone, the reservation with it: records the failure in one of its own."""
    reserved = yield Reserve(reservation_of(gate, attempt))
    if not reserved.decision.claims:
        return
    claim = claim_of(attempt.surface, attempt.arrival, reserved, attempt.declared)
    for step in undone.noted():
        claim.note(step)
    yield from settle_failure_flow(gate, claim, error)
