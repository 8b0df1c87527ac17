"""Giving back: a task was cancelled while its reservation was on its way, and nothing was called.

The reservation may be granted all the same; left alone it would be in flight until it lapses, and then be
taken for one that may have acted. Called by the admitting flow. Must never give back a claim of which
anything was called, and never hold up for long a task that is to end.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from typing import Any, Final

from msgspec.structs import replace

from oncegate.commit.operations import Reserve, Settle
from oncegate.commit.pending import Pending
from oncegate.errors import StoreError
from oncegate.gate.driver.requests import Flow, Invoke, Where
from oncegate.gate.flows.effect_notes import not_called
from oncegate.gate.flows.record_only import Record
from oncegate.gate.flows.recovery import opaque_start
from oncegate.gate.flows.settlement import settlement_of
from oncegate.gate.runtime.claim import Claim, claim_of
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.surface import Surface
from oncegate.model.declarations import OPAQUE_STEP
from oncegate.model.states import Decision, State
from oncegate.model.surface import Arrival
from oncegate.store import Reserved, Settlement

# A loop that is being closed waits for its tasks, not for what they leave behind; but a deadline of the
# caller's must not wait for a store that is down.
MOMENT_SECONDS: Final = 0.5
REASON: Final = "cancelled before anything was called"


def give_back_flow(gate: GateContext, surface: Surface, arrival: Arrival, question: Reserve) -> Flow[None]:
    """Releases a claim as soon as it is granted, because no task waits for it any more."""
    if question.loop is None:
        return
    given: Future[None] = question.loop.create_future()

    def answered(late: Future[Reserved | None]) -> None:
        reserved = late.result()
        if reserved is None or not _is_claim(question, reserved):
            _tell(given)
            return
        claim = claim_of(surface, arrival, reserved)
        _settle(gate, as_it_was(gate, claim), given)

    question.answered_late().add_done_callback(answered)
    yield Invoke(_wait_a_moment, (given,), where=Where.HERE)


async def _wait_a_moment(given: Future[None]) -> None:
    await asyncio.wait((given,), timeout=MOMENT_SECONDS)


def _is_claim(question: Reserve, reserved: Reserved) -> bool:
    """Whether there is something to give back: what is only recorded is settled when it is new."""
    is_settled = isinstance(question, Record) and reserved.decision is Decision.RUN
    return reserved.decision.claims and not is_settled


def as_it_was(gate: GateContext, claim: Claim, reason: str = REASON) -> Settlement:
    """Ends a claim without using up an attempt; what earlier attempts left open stays as open."""
    if not claim.surface.takes_once:
        _note_opaque(claim)
    settlement = settlement_of(gate, claim, State.RETRYABLE, None, reason)
    return replace(settlement, attempts_given_back=1)


def _note_opaque(claim: Claim) -> None:
    """An opaque call's start is its reservation: this one's was none, an interrupted one's was."""
    if claim.is_first_attempt:
        claim.note(not_called(claim, OPAQUE_STEP, claim.surface.opaque_at))
    elif claim.reserved.decision is Decision.RECOVER and OPAQUE_STEP not in claim.steps:
        started = opaque_start(claim, None)
        if started is not None:
            claim.note(started)


def _settle(gate: GateContext, settlement: Settlement, given: Future[None]) -> None:
    """Asks for it without a task, which a loop that closes would complain of."""
    try:
        asked = gate.commits.submit_nowait(Settle(settlement))
    except StoreError:
        _tell(given)
        return
    if isinstance(asked, Pending):
        _tell(given)
    else:
        asked.add_done_callback(lambda done: _tell(given, done))


def _tell(given: Future[None], done: Future[Any] | None = None) -> None:
    """An error is read and dropped: the claim's lease then expires, and recovery takes over."""
    if done is not None and not done.cancelled():
        done.exception()
    if not given.done():
        given.set_result(None)
