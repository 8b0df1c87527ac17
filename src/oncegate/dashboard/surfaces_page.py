"""Surfaces: for each kind of event its rule, its numbers, and what to do about each repeat (D10)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from oncegate.dashboard.commands import repeats_command
from oncegate.dashboard.request_context import NotHere, PageResponse, RequestContext, Tools
from oncegate.gate.surface import Surface
from oncegate.model.durations import format_duration
from oncegate.model.repeats import RepeatClass
from oncegate.model.surface import SurfaceRule
from oncegate.signals.measures import measure
from oncegate.signals.snapshot import DAY, WEEK, Counts, Snapshot
from oncegate.sources.status import SeenSource, read_sources
from oncegate.store import Session

FAULTS_SHOWN: Final = 10


class SurfaceView(Struct, frozen=True):
    """One surface: declared rules, what a day looked like, and which repeats are normal."""

    name: str
    rules: list[tuple[str, str]]
    arrivals: int
    repeats: int
    retries: int
    share: str
    p99_ms: float | None
    classes: list[tuple[RepeatClass, int]]
    waiting: int
    sources: list[SeenSource]


def surfaces_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """All surfaces that are declared or that anything is known of."""
    snapshot = measure(session, tools.clock, windows=(DAY, WEEK), memory=tools.memory)
    declared = {surface.name: surface for surface in tools.surfaces()}
    names = sorted({*declared, *snapshot.surfaces})
    sources = read_sources(session)
    sheets = [_sheet(name, declared.get(name), snapshot, sources) for name in names]
    return PageResponse(
        "surfaces.html", {"title": "Surfaces", "sheets": sheets, "knows_rules": bool(declared)}
    )


class Habit(Struct, frozen=True):
    """One kind of repeats: how often it was seen, whether it is normal, what to do about it."""

    kind: RepeatClass
    day: int
    week: int

    @property
    def verdict(self) -> str:
        """Whether somebody should look."""
        if self.kind.is_normal:
            return "normal"
        return "a fault of the sender" if self.kind.is_sender_bug else "worth a question"


def surface_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """The operator's page for one kind of event: all kinds of repeats, the evidence against senders."""
    name = visit.query.get("name", "")
    declared = {surface.name: surface for surface in tools.surfaces()}
    snapshot = measure(session, tools.clock, windows=(DAY, WEEK), memory=tools.memory)
    if name not in {*declared, *snapshot.surfaces}:
        raise NotHere("there is no such surface")
    day, week = (snapshot.counts(window, name).classes() for window in (DAY, WEEK))
    values = {
        "title": f"Surface {name}",
        "sheet": _sheet(name, declared.get(name), snapshot, read_sources(session)),
        "habits": [Habit(kind, day.get(kind, 0), week.get(kind, 0)) for kind in RepeatClass],
        "faults": session.sender_bugs(name, FAULTS_SHOWN),
        "command": repeats_command(name),
    }
    return PageResponse("surface.html", values)


def _sheet(
    name: str, surface: Surface | None, snapshot: Snapshot, sources: list[SeenSource]
) -> SurfaceView:
    counts: Counts = snapshot.counts(DAY, name)
    latency = counts.latency_seconds(0.99)
    return SurfaceView(
        name,
        [] if surface is None else _rules(surface),
        counts.arrivals,
        counts.repeats,
        counts.retries,
        f"{counts.repeat_share:.1%}",
        None if latency is None else latency * 1000,
        sorted(counts.classes().items(), key=lambda item: -item[1]),
        sum(one.count for one in snapshot.waiting if one.surface == name),
        [one for one in sources if one.status.surface == name],
    )


def _retries(rule: SurfaceRule) -> str:
    limit = "" if rule.attempts_max is None else f"at most {rule.attempts_max} attempts"
    if rule.retry is None or rule.retry.retry_for is None:
        return f"{limit}, when the caller tries again"
    horizon = f"for {format_duration(rule.retry.retry_for)}"
    return f"{horizon}, {limit}" if limit else horizon


def _rules(surface: Surface) -> list[tuple[str, str]]:
    rule = surface.rule
    rules = [
        ("key", rule.key.text),
        ("promise", surface.promise),
        ("retention", rule.retention_text),
        ("time limit", format_duration(rule.time_limit)),
        ("retries", _retries(rule)),
        ("late after", format_duration(rule.late_replay_after)),
    ]
    if rule.occurred_at_path:
        rules.append(("skew limit", format_duration(rule.skew_max)))
    if rule.approve_first:
        rules.append(("approval", "a person approves every event first"))
    return rules
