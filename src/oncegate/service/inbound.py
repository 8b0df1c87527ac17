"""Webhooks in: the signature on the raw bytes first, then strict JSON, then the gate, then the answer."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from oncegate.clock import Clock
from oncegate.errors import (
    Backlogged,
    ClaimLost,
    Conflict,
    EventError,
    Failed,
    NotAuthentic,
    OncegateError,
    OutcomeUnknown,
    Quarantined,
    StoreError,
)
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.model.trace import Context, context_of
from oncegate.service.large_bodies import LargeBodies
from oncegate.service.messages import ServiceResponse, check_media_type, json_answer, problem_answer
from oncegate.service.surfaces import Entrance
from oncegate.signatures import Authentic, Headers

_RUN: Final = Verdict.RUN
_REPLAY: Final = Verdict.REPLAY
# Errors that say nothing about the event's handler: they mean the same wherever they come from.
PLAIN: Final = (StoreError, EventError, Conflict, Quarantined, Backlogged)


def check_webhook(clock: Clock, entrance: Entrance, headers: Headers, body: bytes) -> Authentic:
    """Makes sure that a webhook is its sender's, by its raw bytes, and that its body is of its kind."""
    authentic = check_sender(clock, entrance, headers, body)
    if entrance.provider is None or not entrance.provider.is_form(headers):
        check_media_type(headers)
    return authentic


def check_sender(clock: Clock, entrance: Entrance, headers: Headers, body: bytes) -> Authentic:
    """Makes sure that a webhook is its sender's; nothing else of it may be looked at before."""
    try:
        return entrance.scheme.verify(headers, body, clock.wall_ms() // 1000)
    except NotAuthentic as error:
        error.challenge = entrance.challenge
        raise


async def admit_webhook(
    gate: GateOnStore,
    large: LargeBodies,
    entrance: Entrance,
    headers: Headers,
    body: bytes,
    *,
    authentic: Authentic,
) -> ServiceResponse:
    """Admits what `check_webhook` let pass; of a provider's the event is as a receiver gives it."""
    context, tenant, provider = context_of(headers.only), entrance.tenant, entrance.provider
    if provider is not None and provider.is_form(headers):
        payload: Any = provider.read(headers, body)
    elif large.has(body):
        payload = await large.in_turn(tenant, large.read, body)
    else:
        payload = large.read(body)
    event = payload
    if provider is not None:
        if (greeting := provider.greeting(payload)) is not None:
            return json_answer(200, greeting)
        event = provider.event(headers, body, authentic, payload, trusts_header=entrance.trusts_id)
    surface = entrance.surface_of(event)
    return await admit(gate, surface, event, tenant, context, large=large if large.has(body) else None)


async def admit(
    gate: GateOnStore,
    surface: str,
    event: Any,
    tenant: str,
    context: Context | None = None,
    *,
    large: LargeBodies | None = None,
) -> ServiceResponse:
    """Admits an event and says what came of it; with `large`, what is made of its content is made there."""
    try:
        if large is None:
            return answer_to(await gate.admit(surface, event, tenant=tenant, context=context))
        begin = partial(gate.engine.begin, surface, event, tenant=tenant, context=context)
        begun = await large.in_turn(tenant, begin)
        return answer_to(begun if isinstance(begun, Admission) else await begun.finish())
    except PLAIN:
        raise
    except OncegateError as error:
        return after_failure(error)


def answer_to(admission: Admission) -> ServiceResponse:
    """The verdict as HTTP."""
    verdict, key = admission.verdict, admission.key
    if admission.error is not None:
        detail = "it will not be tried again"
        return problem_answer(Problem(ProblemKind.RECORDED_FAILURE, detail, why=admission.why()))
    if verdict is _RUN or verdict is _REPLAY:
        document = {"replay": verdict is _REPLAY, "key": key, "outcome": admission.value}
        return json_answer(200, document | admission.why(), key=key)
    if admission.is_paused:
        detail = "an operator has paused it; nothing was run"
        why = admission.why("an operator has paused its surface")
        return problem_answer(Problem(ProblemKind.PAUSED, detail, admission.retry_after_seconds, why=why))
    if admission.verdict is Verdict.BUSY and admission.is_down:
        detail, wait = "it is on record and tried again later", min(admission.retry_after_seconds, 60.0)
        why = admission.why("its handler is down")
        return problem_answer(Problem(ProblemKind.HANDLER_FAILED, detail, wait, why=why))
    if admission.verdict is Verdict.BUSY:
        wait = min(admission.retry_after_seconds, 60.0)
        return problem_answer(Problem(ProblemKind.BUSY, "send it again later", wait, why=admission.why()))
    if admission.verdict is Verdict.CONFLICT:
        kept = "" if admission.reason is None else f"; {admission.reason}"
        detail = f"the key is known with another content; nothing was run{kept}"
        why = admission.why(admission.reason or "another content under a known key")
        return problem_answer(Problem(ProblemKind.CONFLICT, detail, why=why))
    if admission.verdict is Verdict.ACCEPTED:
        document = {"replay": False, "key": key, "state": "accepted"}
        return json_answer(202, document | admission.why(admission.reason), key=key)
    state = "quarantined" if admission.verdict is Verdict.QUARANTINE else "held"
    document = {"replay": False, "key": admission.key, "state": state} | admission.why(admission.reason)
    return json_answer(202, document, key=admission.key)


def after_failure(error: OncegateError) -> ServiceResponse:
    """The handler was asked and failed: the gate has recorded what that means."""
    if isinstance(error, Failed):
        detail, why = "it will not be tried again", {"reason": "its handler refused it"}
        return problem_answer(Problem(ProblemKind.RECORDED_FAILURE, detail, why=why))
    if isinstance(error, OutcomeUnknown):
        return json_answer(
            202, {"replay": False, "state": "held", "reason": "it is not known what came of it"}
        )
    detail = (
        "another worker has it now" if isinstance(error, ClaimLost) else "it is on record; send it again"
    )
    # With Retry-After senders leave all events alone, not this one: only where all would meet the same.
    wait = error.retry_after_seconds
    why = {"reason": "its handler failed" if wait is None else "its handler is down"}
    return problem_answer(
        Problem(ProblemKind.HANDLER_FAILED, detail, None if wait is None else min(wait, 60.0), why=why)
    )
