"""Every answer over HTTP says why nothing was run, and since when the key is known (F3, D7)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncegate import Admission, Verdict
from oncegate.integrations.policy import KeyedExchange
from oncegate.integrations.policy import answer_to as by_middleware
from oncegate.integrations.problems import Problem
from oncegate.integrations.replies import Reply
from oncegate.receiver.answers import from_admission as by_receiver
from oncegate.service.inbound import answer_to as by_service

SECRET = "card 4711 refused"
FIRST_MS = 1_790_000_000_123
FIRST = "2026-09-21T14:13:20.123Z"
ADMISSIONS = {
    "replay": (Admission(Verdict.REPLAY, "k", 1, reason="already done"), "already done"),
    "failed": (Admission(Verdict.REPLAY, "k", error=SECRET, reason=SECRET), "already failed"),
    "busy": (Admission(Verdict.BUSY, "k", reason=SECRET), "in flight elsewhere"),
    "delayed": (Admission(Verdict.BUSY, "k", reason=SECRET, delayed=True), "waits to be tried again"),
    "conflict": (Admission(Verdict.CONFLICT, "k", reason="it is kept"), None),
    "held": (Admission(Verdict.HOLD, "k", reason="waits for approval"), None),
    "quarantined": (Admission(Verdict.QUARANTINE, "k", reason="skew: 2h", skew_ms=-7), None),
}


def said(admission: Admission, edge: str) -> dict[str, Any]:
    """The members of an answer, or its headers where the body is the application's own."""
    if edge == "service":
        return dict(json.loads(by_service(admission).body))
    if edge == "receiver":
        return dict(json.loads(by_receiver(admission, ordered=False).body))
    if admission.verdict is Verdict.REPLAY and admission.error is None:
        admission = Admission(
            Verdict.REPLAY, "k", Reply(200, (), b"{}"), first_seen_ms=admission.first_seen_ms
        )
    answer = by_middleware(admission, KeyedExchange.__new__(KeyedExchange))
    if isinstance(answer, Problem):
        return dict(json.loads(answer.body))
    names = {name.removeprefix("idempotency-").replace("-", "_"): value for name, value in answer.headers}
    return {**names, "reason": names.get("reason")}


@pytest.mark.parametrize("edge", ["service", "receiver", "middleware"])
@pytest.mark.parametrize("verdict", ADMISSIONS)
def test_answer_says_why_and_since_when(edge: str, verdict: str) -> None:
    """In words of ours: what a handler's error said is not among them."""
    admission, reason = ADMISSIONS[verdict]
    values = {name: getattr(admission, name) for name in admission.__struct_fields__}
    found = said(Admission(**values | {"first_seen_ms": FIRST_MS}), edge)
    assert found["first_seen"] == FIRST
    assert found["reason"] == reason if reason else found["reason"]
    assert found.get("skew_ms") == admission.skew_ms
    assert SECRET not in json.dumps(found)


def test_event_that_ran_has_no_reason() -> None:
    assert said(Admission(Verdict.RUN, "k", 1), "service") == {"replay": False, "key": "k", "outcome": 1}
