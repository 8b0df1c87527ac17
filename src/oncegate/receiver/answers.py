"""What a receiver answers, for any framework: a status, headers and a body. Reveals no outcome."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
from msgspec import Struct

from oncegate.errors import (
    Backlogged,
    Busy,
    ClaimLost,
    EventNotStorable,
    Failed,
    NotApplied,
    RequestRefused,
    StoreError,
)
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.runtime.not_run_log import held_reason, parked_reason
from oncegate.receiver.lanes import Gap

RETRY_SECONDS: Final = 1.0
WAIT_SECONDS: Final = 60.0  # people are not that quick


class Answer(Struct, frozen=True):
    """A response to be sent as it is."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def answer(status: int, document: dict[str, Any], retry_after_seconds: float | None = None) -> Answer:
    """A small JSON answer; `Retry-After` in whole seconds, never fewer than asked for."""
    headers = [("content-type", "application/json")]
    if retry_after_seconds is not None:
        headers.append(("retry-after", str(max(1, math.ceil(retry_after_seconds)))))
    return Answer(status, tuple(headers), msgspec.json.encode(document))


def from_admission(admission: Admission, *, ordered: bool, gap: Gap | None = None) -> Answer:
    """What the gate said, as HTTP; with the seqs that were passed over for it.

    An event that waits for a person is taken (202), unless its lane must wait with it: then it is not
    acknowledged, and stays the sender's first until a person has decided.
    """
    if admission.error is not None:
        return answer(422, {"replay": True, "error": "failed", **admission.why()})
    if admission.verdict in (Verdict.RUN, Verdict.REPLAY):
        passed = {} if gap is None else {"passed_over": [gap.first, gap.last]}
        return answer(200, {"replay": admission.replay, **admission.why(), **passed})
    if admission.is_paused:
        return answer(503, {"error": "paused"}, admission.retry_after_seconds)
    if admission.verdict is Verdict.BUSY:
        return answer(409, {"error": "busy", **admission.why()}, admission.retry_after_seconds)
    if admission.verdict is Verdict.CONFLICT:
        reason = admission.reason or "it was not kept"
        told = {"error": "the id is known with another content", **admission.why(reason)}
        return answer(422, told)
    reason_of = parked_reason if admission.verdict is Verdict.QUARANTINE else held_reason
    reason = reason_of(admission.reason)
    waits = {"waits": admission.verdict.value, **admission.why(reason)}
    # Not 503: with Retry-After it would be a wish of the whole endpoint, and every key would wait.
    return answer(423, waits, WAIT_SECONDS) if ordered else answer(202, waits)


def from_error(error: Exception) -> Answer:
    """An error of the request, the handler or the ledger, as HTTP; its text goes to the log only."""
    if isinstance(error, RequestRefused):
        return answer(error.status, {"error": str(error)})
    if isinstance(error, EventNotStorable):
        return answer(400, {"error": "the event cannot be recorded"})
    if isinstance(error, Failed):
        return answer(422, {"replay": False, "error": "failed"})
    if isinstance(error, StoreError):
        return answer(503, {"error": "try again"}, RETRY_SECONDS)
    if isinstance(error, Backlogged):
        return answer(429, {"error": "too many events wait for a person"}, error.retry_after_seconds)
    if isinstance(error, (Busy, ClaimLost)):
        return answer(409, {"error": "busy"}, RETRY_SECONDS)
    if isinstance(error, NotApplied):
        return answer(503, {"error": "try again"})  # one event's trouble, so no time is asked for
    return answer(500, {"error": "the handler failed"})


def too_early(expected: int, got: int) -> Answer:
    """A seq whose predecessor has not been applied."""
    return answer(425, {"error": "too early", "expected": expected, "got": got}, RETRY_SECONDS)


def passed_over(position: int, got: int) -> Answer:
    """A seq that the lane has left behind, under an id that was never applied."""
    return answer(
        409, {"error": "the lane has gone on without this event", "position": position, "got": got}
    )
