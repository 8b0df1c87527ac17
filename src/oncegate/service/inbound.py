"""Webhooks in: the signature on the raw bytes first, then strict JSON, then the gate, then the answer."""

from __future__ import annotations

from typing import Any

from oncegate.errors import (
    ClaimLost,
    Conflict,
    EventError,
    Failed,
    OncegateError,
    OutcomeUnknown,
    Quarantined,
    StoreError,
)
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.gate import Gate
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.model.trace import Context, context_of
from oncegate.service.messages import Answer, Incoming, json_answer, problem_answer
from oncegate.service.strictjson import read_json
from oncegate.service.surfaces import Entrance


async def receive_webhook(gate: Gate, entrance: Entrance, incoming: Incoming) -> Answer:
    """Serves `POST /in/{surface}`."""
    body = await incoming.body()
    entrance.scheme.verify(incoming.headers, body, gate.clock.wall_ms() // 1000)
    incoming.check_media_type()
    context = context_of(incoming.headers.only)
    return await admit(gate, entrance.surface, read_json(body), entrance.tenant, context)


async def admit(
    gate: Gate, surface: str, event: Any, tenant: str, context: Context | None = None
) -> Answer:
    """Admits an event and says what came of it."""
    try:
        return answer_to(await gate.admit(surface, event, tenant=tenant, context=context))
    except (StoreError, EventError, Conflict, Quarantined):
        raise
    except OncegateError as error:
        return _after_failure(error)


def answer_to(admission: Admission) -> Answer:
    """The verdict as HTTP."""
    if admission.error is not None:
        return problem_answer(Problem(ProblemKind.RECORDED_FAILURE, "it will not be tried again"))
    if admission.verdict in (Verdict.RUN, Verdict.REPLAY):
        document = {"replay": admission.replay, "key": admission.key, "outcome": admission.value}
        return json_answer(200, document, key=admission.key)
    if admission.verdict is Verdict.BUSY:
        return problem_answer(
            Problem(ProblemKind.BUSY, "send it again later", min(admission.retry_after_seconds, 60.0))
        )
    if admission.verdict is Verdict.CONFLICT:
        detail = "the key is known with another content; nothing was run"
        return problem_answer(Problem(ProblemKind.CONFLICT, detail))
    if admission.verdict is Verdict.ACCEPTED:
        return json_answer(
            202, {"replay": False, "key": admission.key, "state": "accepted"}, key=admission.key
        )
    state = "quarantined" if admission.verdict is Verdict.QUARANTINE else "held"
    document = {"replay": False, "key": admission.key, "state": state, "reason": admission.reason}
    return json_answer(202, document, key=admission.key)


def _after_failure(error: OncegateError) -> Answer:
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
