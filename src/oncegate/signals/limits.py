"""Limits that operators set: a document of the ledger, journalled, on top of those in code and settings."""

from __future__ import annotations

from typing import Final

import msgspec

from oncegate.errors import UsageError
from oncegate.signals.definitions import Limit, Thresholds
from oncegate.store import DocumentChange, Session

KIND: Final = "signals"
NAME: Final = "limits"


def decided_limits(session: Session) -> Thresholds:
    """The limits that operators have set."""
    found = session.document(KIND, NAME)
    return Thresholds() if found is None else msgspec.json.decode(found.body, type=Thresholds)


def set_limit(
    session: Session, signal: str, place: str, limit: Limit | None, *, at_ms: int, actor: str, reason: str
) -> None:
    """Sets, or with None takes back, the limits of a signal at a place ("" for all); inside a unit.

    Raises UsageError where somebody else changed them at the same moment.
    """
    found = session.document(KIND, NAME)
    known = Thresholds() if found is None else msgspec.json.decode(found.body, type=Thresholds)
    places = {name: dict(limits) for name, limits in known.places.items()}
    whole = dict(known.limits)
    chosen = places.setdefault(place, {}) if place else whole
    chosen.pop(signal, None)
    if limit is not None:
        chosen[signal] = limit
    after = Thresholds(whole, places={name: limits for name, limits in places.items() if limits})
    where = f" on {place}" if place else ""
    told = "as declared" if limit is None else f"ticket {limit[0]}, page {limit[1]}"
    note = f"limits of {signal}{where}: {told}; {reason}"
    version = 0 if found is None else found.version
    body = msgspec.json.encode(after)
    if not session.change_document(DocumentChange(KIND, NAME, version, body, at_ms, actor, note)):
        raise UsageError("the limits were changed at the same moment; look at them and try again")
