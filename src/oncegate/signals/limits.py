"""Limits that operators set: a document of the ledger, journalled, on top of those in code and settings."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import timedelta
from typing import Final

import msgspec

from oncegate.errors import BadDuration, UsageError
from oncegate.model.durations import format_duration, parse_duration
from oncegate.signals.definition import Definition, Unit
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

    Raises UsageError where another operator changed them at the same moment.
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


def read_limit(text: str, signal: Definition) -> float | None:
    """Reads a limit as a person writes it; None for `never`. Raises UsageError.

    Seconds may be written as a duration (`10m`), ratios in percent (`20%`).
    """
    given = text.strip().lower()
    if given in ("", "never"):
        return None
    value = _number(given)
    if value is None and signal.unit is Unit.RATIO and given.endswith("%"):
        share = _number(given[:-1].rstrip())
        value = None if share is None else share / 100
    if value is None and signal.unit is Unit.SECONDS:
        with suppress(BadDuration):
            value = parse_duration(given).total_seconds()
    if value is None or not math.isfinite(value) or value <= 0:
        raise UsageError(f"a limit of {signal.name} is {_SHAPES[signal.unit]}, or never, not {text[:40]!r}")
    return value


def limit_text(value: float | None, signal: Definition) -> str:
    """A limit as a person writes it; `read_limit` reads it back."""
    if value is None:
        return "never"
    if signal.unit is Unit.SECONDS:
        return format_duration(timedelta(seconds=value))
    return f"{value * 100:.6g}%" if signal.unit is Unit.RATIO else f"{value:g}"


_SHAPES: Final = {
    Unit.COUNT: "a number above zero",
    Unit.SECONDS: "a number of seconds above zero, or a duration such as 10m",
    Unit.RATIO: "a share above zero such as 0.2 or 20%",
}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
