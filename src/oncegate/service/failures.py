"""Every error of a request as an answer: a problem document that quotes nothing of what was sent."""

from __future__ import annotations

import logging
from typing import Final

from oncegate.errors import (
    Backlogged,
    BadOutgoing,
    Conflict,
    CursorExpired,
    CursorRefused,
    EventError,
    MalformedRequest,
    NotAuthentic,
    StoreError,
)
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.service.messages import RequestDenied, ServiceResponse, problem_answer

STORE_RETRY_SECONDS: Final = 5.0

log: Final = logging.getLogger("oncegate.service")

_KINDS: Final[tuple[tuple[type[Exception], ProblemKind], ...]] = (
    (MalformedRequest, ProblemKind.MALFORMED),
    (CursorExpired, ProblemKind.CURSOR_EXPIRED),
    (CursorRefused, ProblemKind.CURSOR_REFUSED),
    (Conflict, ProblemKind.CONFLICT),
    (EventError, ProblemKind.MALFORMED),
    (BadOutgoing, ProblemKind.MALFORMED),
)


def answer_to_error(error: Exception) -> ServiceResponse:
    """What the caller gets; an error that is not ours is logged and not quoted."""
    if isinstance(error, RequestDenied):
        return problem_answer(error.problem)
    if isinstance(error, StoreError):
        log.warning("the store failed: %s", error)
        detail = "nothing is certain but what is on record; send the same request again later"
        return problem_answer(Problem(ProblemKind.STORE_UNAVAILABLE, detail, STORE_RETRY_SECONDS))
    if isinstance(error, NotAuthentic):
        challenge = (("www-authenticate", error.challenge),)
        return problem_answer(Problem(ProblemKind.NOT_AUTHENTIC, str(error), more_headers=challenge))
    if isinstance(error, Backlogged):
        detail = "too many events of this sender wait for a person; nothing was stored, send it again later"
        return problem_answer(Problem(ProblemKind.TOO_MANY, detail, error.retry_after_seconds))
    for kind, problem in _KINDS:
        if isinstance(error, kind):
            return problem_answer(Problem(problem, str(error)))
    log.error("a request failed", exc_info=error)
    detail = "it was logged; whether it took effect is on record"
    return problem_answer(Problem(ProblemKind.INTERNAL, detail))


def leaves_the_body(error: Exception) -> bool:
    """Whether the body was not read to its end, so that the connection cannot go on."""
    return isinstance(error, RequestDenied) and error.problem.status in (413, 415)
