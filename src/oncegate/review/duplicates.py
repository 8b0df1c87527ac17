"""What would undo the later of two equal changes, as far as the ledger knows."""

from __future__ import annotations

import msgspec

from oncegate.gate.codec.outcome import decode_outcome
from oncegate.model.content import fill_in
from oncegate.store import Duplicate, Session


def compensation_of(session: Session, pair: Duplicate) -> str | None:
    """The declared compensation with its names filled in from the event and its outcome; None for none."""
    if pair.compensation is None:
        return None
    detail = session.detail(pair.pair.entry_id)
    if detail is None:
        return None
    outcome = decode_outcome(detail.outcome)
    event, value = _read(detail.body), _read(bytes(outcome.value))
    return fill_in(pair.compensation, event, value, outcome.resource)


def _read(body: bytes | None) -> object:
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return None
