"""What needs a person, grouped by cause, for the page Now. Each row links to exactly what it counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct

from oncegate.dashboard.facts import fact
from oncegate.dashboard.rendering import counted
from oncegate.dashboard.verdict import capital, open_ones
from oncegate.lanes.circuit_status import DOWNSTREAM, observed
from oncegate.model.states import State
from oncegate.signals import definitions as d
from oncegate.signals.alerts import Signal, late_seconds
from oncegate.signals.definition import Definition, Level
from oncegate.signals.measures import Memory
from oncegate.signals.snapshot import HOUR, TEN_MINUTES, Snapshot
from oncegate.store import DestinationView, Facet, Session, Waiting, offers

CAUSES_MAX: Final = 12
_WORDS: Final = {
    "skew": "Their own time is too far from ours",
    "bad_time": "Their own time cannot be read",
    "key_input": "No key can be read from them",
    "tenant_input": "They do not say whose they are",
    "content_input": "What they change cannot be read",
    "lane_input": "Their lane cannot be read",
    "event_input": "They do not fit what their handler takes",
    "beyond_retention": "Older than their surface remembers",
    "conflict": "Other content under a known key",
    "content_duplicate": "The same change as another one",
    "approval": "Approvals",
    "in_doubt": "May or may not have happened",
    "attempts_used_up": "Gave up after all attempts",
    "two_resources": "One key owns two resources",
    "other": "Quarantined for another reason",
}
GROUPED: Final = frozenset(
    {d.DOUBLED, d.TWO_RESOURCES, d.TARGETS, d.QUARANTINES, d.WAITING, d.LANES_BLOCKED}
)


class Cause(Struct, frozen=True):
    """One row: how bad, what, where, how many, since when, and where to go on."""

    tone: str
    text: str
    place: str
    count: str
    since_ms: int | None
    link: str
    verb: str


def causes_of(signals: Sequence[Signal], snapshot: Snapshot) -> list[Cause]:
    """All that a person should look at, the worst first."""
    found = [*_doubled(snapshot), *_seconds(snapshot), *_waiting(signals, snapshot)]
    found += [*_blocked(signals, snapshot), *_others(signals, snapshot)]
    order = {"page": 0, "ticket": 1}
    return sorted(found, key=lambda one: order.get(one.tone, 2))


def _doubled(snapshot: Snapshot) -> list[Cause]:
    return [
        Cause(
            Level.PAGE.label, "The same change ran twice", one.surface, counted(one.count, "pair"),
            one.oldest_at_ms, f"/doubled?{urlencode({'surface': one.surface})}", "Review pairs",
        )
        for one in snapshot.doubled
    ]  # fmt: skip


def _seconds(snapshot: Snapshot) -> list[Cause]:
    return [
        Cause(
            Level.PAGE.label, f"A second resource for one {one.of}", one.surface,
            counted(one.findings, "finding"), one.oldest_at_ms,
            f"/resources?{urlencode({'surface': one.surface, 'of': one.of})}", "Review resources",
        )
        for one in snapshot.second_counts
    ]  # fmt: skip


def waiting_causes(session: Session, memory: Memory, now_ms: int) -> list[Cause]:
    """What waits for a decision, by cause and with its filter, the worst first."""
    if not offers(session, Facet.STATS):
        return []
    snapshot = Snapshot(now_ms, session.now_ticks(), {}, tuple(memory.waiting(session)))
    return sorted(_waiting((), snapshot), key=lambda one: one.tone != Level.PAGE.label)


def _waiting(signals: Sequence[Signal], snapshot: Snapshot) -> list[Cause]:
    groups: dict[tuple[str, State, str], list[Waiting]] = {}
    for one in open_ones(snapshot):
        groups.setdefault((one.surface, one.state, one.reason), []).append(one)
    overdue = _level_of(signals, d.OVERDUE)
    return [_waits(place, group, snapshot, overdue) for place, group in groups.items()]


def _waits(
    place: tuple[str, State, str], group: list[Waiting], snapshot: Snapshot, overdue: dict[str, Level]
) -> Cause:
    surface, state, reason = place
    is_late = any(late_seconds(snapshot, one) > 0 for one in group)
    is_red = state is State.QUARANTINED or is_late or reason == "two_resources"
    level = Level.PAGE if is_red else max(Level.TICKET, overdue.get(surface, Level.OK))
    text = _WORDS.get(reason, reason.replace("_", " ").capitalize() or state.label)
    terms = f'state:{state.label} surface:"{surface}"' + (f" cause:{reason}" if reason else "")
    return Cause(
        level.label, f"{text}{', past their limit' if is_late else ''}", surface,
        f"{sum(one.count for one in group)} {state.label.replace('_', ' ')}",
        min(one.oldest_at_ms for one in group), f"/waiting?{urlencode({'q': terms})}", "Review",
    )  # fmt: skip


def _blocked(signals: Sequence[Signal], snapshot: Snapshot) -> list[Cause]:
    levels = _level_of(signals, d.LANES_BLOCKED)
    return [
        Cause(
            levels.get(one.name, Level.TICKET).label,
            f"Keys are blocked, {counted(one.events, 'event')} not delivered", one.name,
            counted(one.blocked, "key"), one.oldest_blocked_at_ms,
            f"/lanes?{urlencode({'destination': one.name, 'state': 'blocked'})}", "Retry or skip",
        )
        for one in snapshot.destinations
        if one.blocked
    ]  # fmt: skip


def _others(signals: Iterable[Signal], snapshot: Snapshot) -> list[Cause]:
    """Raised signals that are no group of entries, pairs or keys."""
    since = {name: one.since_ms for name, one in snapshot.circuits.items()}
    return [
        Cause(
            one.level.label, capital(fact(one.definition, one.value)), one.surface.removeprefix(DOWNSTREAM),
            "", since.get(one.surface) if one.definition is d.CIRCUIT_OPEN else None, *_way_on(one),
        )
        for one in signals
        if one.level > Level.OK and one.definition not in GROUPED
    ]  # fmt: skip


def _way_on(one: Signal) -> tuple[str, str]:
    if one.definition is d.FAILED:
        terms = f'state:failed surface:"{one.surface}"'
        return f"/entries?{urlencode({'q': terms})}", "Review"
    return f"#signal-{one.definition.name}", "What to do"


def _level_of(signals: Iterable[Signal], definition: Definition) -> dict[str, Level]:
    return {one.surface: one.level for one in signals if one.definition is definition}


class SurfaceRow(Struct, frozen=True):
    """A surface in one line; `tone` is the worst of its signals, grey where nothing arrives."""

    tone: str
    name: str
    arrivals: int
    repeats: str
    quarantined: int
    waiting: int
    p99: str


def surface_rows(signals: Sequence[Signal], snapshot: Snapshot) -> list[SurfaceRow]:
    """Every surface, by name."""
    waiting = open_ones(snapshot)
    rows = []
    for name in snapshot.surfaces:
        hour, ten = snapshot.counts(HOUR, name), snapshot.counts(TEN_MINUTES, name)
        mine = [one for one in waiting if one.surface == name]
        level = max(
            (s.level for s in signals if s.surface == name and s.definition.label == "surface"),
            default=Level.OK,
        )
        is_silent = level is Level.OK and not hour.arrivals
        share = f"{hour.repeat_share:.0%}" if hour.unasked else ""
        p99 = ten.latency_seconds(0.99)
        rows.append(
            SurfaceRow(
                "unknown" if is_silent else level.label, name, hour.arrivals, share,
                sum(one.count for one in mine if one.state is State.QUARANTINED),
                sum(one.count for one in mine if one.state is not State.QUARANTINED),
                "" if p99 is None else f"{p99 * 1000:.3g} ms",
            )
        )  # fmt: skip
    return rows


class DestinationRow(Struct, frozen=True):
    """A destination in one line."""

    tone: str
    name: str
    state: str
    blocked: int
    events: int
    oldest_ms: int | None


def destination_rows(signals: Sequence[Signal], snapshot: Snapshot) -> list[DestinationRow]:
    """Every destination, by name."""
    rows = []
    for one in snapshot.destinations:
        level = max(
            (s.level for s in signals if s.surface == one.name and s.definition.label == "destination"),
            default=Level.OK,
        )
        if one.name in snapshot.circuits:
            level = max(level, Level.TICKET)
        rows.append(
            DestinationRow(
                level.label,
                one.name,
                _state(one, snapshot),
                one.blocked,
                one.events,
                one.oldest_created_at_ms,
            )
        )
    return rows


def _state(one: DestinationView, snapshot: Snapshot) -> str:
    circuit = snapshot.circuits.get(one.name)
    if circuit is not None:
        return f"failing: {observed(circuit)}"
    return one.state.label
