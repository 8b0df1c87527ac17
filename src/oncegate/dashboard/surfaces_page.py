"""Surfaces: for each kind of event its rule, its numbers, and what to do about each repeat (D10)."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.dashboard.commands import repeats_command, switch_command
from oncegate.dashboard.request_context import NotHere, PageResponse, RequestContext, Tools
from oncegate.gate.surface import Surface
from oncegate.model.durations import format_duration
from oncegate.model.repeats import RepeatClass
from oncegate.model.surface import SurfaceRule
from oncegate.model.surface_decisions import OBEYED_SECONDS, SurfaceMode
from oncegate.review.observation import observed_surfaces
from oncegate.review.surface_decisions import all_decided, decided_about
from oncegate.review.windows import delays_of
from oncegate.signals.measures import measure
from oncegate.signals.snapshot import DAY, WEEK, Counts, Snapshot
from oncegate.sources.status import SeenSource, read_sources
from oncegate.store import Session

FAULTS_SHOWN: Final = 10
WEEK_MS: Final = 7 * 86_400_000


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
    decided: str = ""


def surfaces_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """All surfaces that are declared or that anything is known of."""
    snapshot = measure(session, tools.clock, windows=(DAY, WEEK), memory=tools.memory)
    declared = {surface.name: surface for surface in tools.surfaces()}
    names = sorted({*declared, *snapshot.surfaces})
    sources, decided = read_sources(session), all_decided(session)
    sheets = [
        replace(sheet, decided=decided[sheet.name].decided.text if sheet.name in decided else "")
        for sheet in (_sheet(name, declared.get(name), snapshot, sources) for name in names)
    ]
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
        """Whether a person should look."""
        if self.kind.is_normal:
            return "normal"
        return "a fault of the sender" if self.kind.is_sender_bug else "worth a question"


def surface_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """The operator's page for one kind of event: all kinds of repeats, the evidence against senders."""
    values = surface_values(tools, session, visit.query.get("name", ""))
    return PageResponse("surface.html", {**values, "done": visit.query.get("done") == "1"})


def surface_values(tools: Tools, session: Session, name: str) -> dict[str, Any]:
    """What the page of one surface shows; raises NotHere where there is none of that name."""
    declared = {surface.name: surface for surface in tools.surfaces()}
    snapshot = measure(session, tools.clock, windows=(DAY, WEEK), memory=tools.memory)
    if name not in {*declared, *snapshot.surfaces}:
        raise NotHere("there is no such surface")
    day, week = (snapshot.counts(window, name).classes() for window in (DAY, WEEK))
    surface, now_ms = declared.get(name), tools.clock.wall_ms()
    observed = observed_surfaces(session, now_ms - WEEK_MS, now_ms)
    return {
        "title": f"Surface {name}",
        "sheet": _sheet(name, declared.get(name), snapshot, read_sources(session)),
        "habits": [Habit(kind, day.get(kind, 0), week.get(kind, 0)) for kind in RepeatClass],
        "faults": session.sender_bugs(name, FAULTS_SHOWN),
        "command": repeats_command(name),
        "seen": decided_about(session, name),
        "mode": None if surface is None else surface.mode.value,
        "modes": list(SurfaceMode),
        "observed": next((one for one in observed if one.surface == name), None),
        "obeyed_seconds": OBEYED_SECONDS,
        "delays": delays_of({what: count for what, (count, _) in snapshot.counts(WEEK, name).sums.items()}),
        "switch": switch_command(name),
        "done": False,
    }


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
        ("mode", surface.mode.value if surface.lane is None else f"accept, {surface.mode.value}"),
        ("key", rule.key.text),
        ("guarantee", surface.promise),
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
