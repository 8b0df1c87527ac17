"""Webhooks in: the signature on the raw bytes first, then strict JSON, then the gate, then the answer."""

from __future__ import annotations

from typing import Any, Final

from oncegate.clock import Clock
from oncegate.errors import (
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
from oncegate.gate.gate import Gate
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.model.trace import Context, context_of
from oncegate.service.messages import Answer, check_media_type, json_answer, problem_answer
from oncegate.service.strictjson import read_json
from oncegate.service.surfaces import Entrance
from oncegate.signatures import Headers

_RUN: Final = Verdict.RUN
_REPLAY: Final = Verdict.REPLAY
# Errors that say nothing about the event's handler: they mean the same wherever they come from.
PLAIN: Final = (StoreError, EventError, Conflict, Quarantined)


def check_webhook(clock: Clock, entrance: Entrance, headers: Headers, body: bytes) -> None:
    """Makes sure that a webhook is its sender's, by its raw bytes, and says that it is JSON."""
    check_sender(clock, entrance, headers, body)
    check_media_type(headers)


def check_sender(clock: Clock, entrance: Entrance, headers: Headers, body: bytes) -> None:
    """Makes sure that a webhook is its sender's; nothing else of it may be looked at before."""
    try:
        entrance.scheme.verify(headers, body, clock.wall_ms() // 1000)
    except NotAuthentic as error:
        error.challenge = entrance.challenge
        raise


async def admit_webhook(gate: Gate, entrance: Entrance, headers: Headers, body: bytes) -> Answer:
    """Admits what `check_webhook` let pass."""
    return await admit(gate, entrance.surface, read_json(body), entrance.tenant, context_of(headers.only))


async def admit(
    gate: Gate, surface: str, event: Any, tenant: str, context: Context | None = None
) -> Answer:
    """Admits an event and says what came of it."""
    try:
        return answer_to(await gate.admit(surface, event, tenant=tenant, context=context))
    except PLAIN:
        raise
    except OncegateError as error:
        return after_failure(error)


def answer_to(admission: Admission) -> Answer:
    """The verdict as HTTP."""
    verdict, key = admission.verdict, admission.key
    if admission.error is not None:
        return problem_answer(Problem(ProblemKind.RECORDED_FAILURE, "it will not be tried again"))
    if verdict is _RUN or verdict is _REPLAY:
        document = {"replay": verdict is _REPLAY, "key": key, "outcome": admission.value}
        return json_answer(200, document, key=key)
    if admission.verdict is Verdict.BUSY:
        return problem_answer(
            Problem(ProblemKind.BUSY, "send it again later", min(admission.retry_after_seconds, 60.0))
        )
    if admission.verdict is Verdict.CONFLICT:
        kept = "" if admission.reason is None else f"; {admission.reason}"
        detail = f"the key is known with another content; nothing was run{kept}"
        return problem_answer(Problem(ProblemKind.CONFLICT, detail))
    if admission.verdict is Verdict.ACCEPTED:
        return json_answer(
            202, {"replay": False, "key": admission.key, "state": "accepted"}, key=admission.key
        )
    state = "quarantined" if admission.verdict is Verdict.QUARANTINE else "held"
    document = {"replay": False, "key": admission.key, "state": state, "reason": admission.reason}
    return json_answer(202, document, key=admission.key)


def after_failure(error: OncegateError) -> Answer:
    """The handler was asked and failed: the gate has recorded what that means."""
    if isinstance(error, Failed):
        return problem_answer(Problem(ProblemKind.RECORDED_FAILURE, "it will not be tried again"))
    if isinstance(error, OutcomeUnknown):
        return json_answer(
            202, {"replay": False, "state": "held", "reason": "it is not known what came of it"}
        )
    detail = (
        "another worker has it now" if isinstance(error, ClaimLost) else "it is on record; send it again"
    )
    # Without Retry-After: with it, senders would leave all events alone, not this one.
    return problem_answer(Problem(ProblemKind.HANDLER_FAILED, detail))
