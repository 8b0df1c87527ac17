"""Limits: from which value on each signal is a ticket or a page, for all places or for one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from oncegate.dashboard.commands import limit_command
from oncegate.dashboard.operators import Role
from oncegate.dashboard.request_context import NotHere, PageResponse, RequestContext, Tools, need
from oncegate.errors import ConfigError, UsageError
from oncegate.model.decisions import check_reason
from oncegate.signals.definition import Definition
from oncegate.signals.definitions import BY_NAME, DEFINITIONS
from oncegate.signals.limits import limit_text, read_limit, set_limit
from oncegate.signals.measures import measure
from oncegate.signals.snapshot import Snapshot
from oncegate.store import Session


class LimitRow(Struct, frozen=True):
    """One signal at one place: its limits as text, and whether an operator set them."""

    signal: Definition
    place: str
    ticket: str
    page: str
    is_set: bool


def limits_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """All limits, with a form for the signal and the place in the query."""
    return PageResponse("limits.html", _values(tools, session, visit.query))


def set_limits(tools: Tools, visit: RequestContext) -> PageResponse:
    """Sets the limits of one signal, or takes back what an operator set."""
    if visit.tenant is not None:
        raise NotHere("there is no such action")
    signal, place = _signal(visit.form.get("signal", "")), visit.form.get("place", "").strip()
    need(tools, visit, Role.APPROVER, f"set the limits of {signal.name}")
    try:
        _set(tools, visit, signal, place)
    except (UsageError, ConfigError) as refused:
        with tools.look() as session:
            values = _values(tools, session, visit.form)
        return PageResponse("limits.html", {**values, "refusal": f"{refused}. Nothing was changed."}, 409)
    return PageResponse(go_to="/limits?" + urlencode({"signal": signal.name, "place": place, "done": "1"}))


def _set(tools: Tools, visit: RequestContext, signal: Definition, place: str) -> None:
    reason = check_reason(visit.form.get("reason", ""))
    limit = None
    if visit.form.get("do") != "take-back":
        ticket, page = (read_limit(visit.form.get(name, ""), signal) for name in ("ticket", "page"))
        limit = ticket, page
    with tools.look() as session:
        known = _places(tools, measure(session, tools.clock, windows=()), signal)
    if place and known is not None and place not in known:
        raise UsageError(f"there is no {signal.label or 'place'} {place[:80]!r} for {signal.name}")
    with tools.commits.transaction() as session:
        set_limit(
            session, signal.name, place, limit,
            at_ms=tools.clock.wall_ms(), actor=visit.visitor.name, reason=reason,
        )  # fmt: skip


def _values(tools: Tools, session: Session, given: Mapping[str, str]) -> dict[str, Any]:
    snapshot = measure(session, tools.clock, windows=(), memory=tools.memory)
    values: dict[str, Any] = {"title": "Limits", "rows": _rows(snapshot), "form": None}
    if given.get("signal"):
        signal, place = _signal(given["signal"]), given.get("place", "")
        row = _row(snapshot, signal, place)
        values["form"] = row
        values["typed"] = {"ticket": given.get("ticket", row.ticket), "page": given.get("page", row.page)}
        values["places"] = sorted(_places(tools, snapshot, signal) or ())
        values["command"] = limit_command(signal.name, place)
        values["done"] = given.get("done") == "1"
    return values


def _rows(snapshot: Snapshot) -> list[LimitRow]:
    places = snapshot.thresholds.places
    return [
        _row(snapshot, signal, place)
        for signal in DEFINITIONS
        for place in ("", *sorted(name for name, found in places.items() if signal.name in found))
    ]


def _row(snapshot: Snapshot, signal: Definition, place: str) -> LimitRow:
    ticket, page = snapshot.thresholds.of(signal, place)
    decided = snapshot.decided.places.get(place, {}) if place else snapshot.decided.limits
    return LimitRow(
        signal, place, limit_text(ticket, signal), limit_text(page, signal), signal.name in decided
    )


def _signal(name: str) -> Definition:
    if name not in BY_NAME:
        raise NotHere("there is no such signal")
    return BY_NAME[name]


def _places(tools: Tools, snapshot: Snapshot, signal: Definition) -> set[str] | None:
    """The places where a signal can have limits of its own; None where any name may be one."""
    if signal.label == "surface":
        return {*(one.name for one in tools.surfaces()), *snapshot.surfaces}
    if signal.label == "destination":
        return {one.name for one in snapshot.destinations}
    return None if signal.label else set()
