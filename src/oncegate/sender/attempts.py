"""The last attempts of one delivery as people see them: when, which answer, how long it took."""

from __future__ import annotations

from msgspec import Struct

from oncegate.sender.responses import read_reason
from oncegate.store import Attempt, DeliveryView, Session


class AttemptView(Struct, frozen=True):
    """One attempt. `status` is None where no response came; `answer` begins the response, or says why."""

    at_ms: int
    took_ms: int | None
    status: int | None
    answer: str
    is_delivered: bool = False


def last_attempts(session: Session, lane_id: int, seq: int) -> list[AttemptView]:
    """The attempts of a delivery that are kept, oldest first; the acknowledged one is the last."""
    found = [_failed(one) for one in session.attempts(lane_id, seq)]
    seen = session.deliveries(lane_id, seq, 1)
    return found + [_delivered(one) for one in seen if one.seq == seq and one.acknowledged_at_ms]


def _failed(attempt: Attempt) -> AttemptView:
    read = read_reason(attempt.error)
    words = attempt.error if read is None else read.excerpt
    return AttemptView(attempt.at_ms, attempt.took_ms, attempt.status, words)


def _delivered(view: DeliveryView) -> AttemptView:
    note = None if view.is_dead else view.note
    read, at_ms = read_reason(note), view.acknowledged_at_ms or 0
    if read is None:
        return AttemptView(at_ms, None, None, note or "", is_delivered=True)
    return AttemptView(at_ms, read.took_ms, read.status, read.excerpt, is_delivered=True)
