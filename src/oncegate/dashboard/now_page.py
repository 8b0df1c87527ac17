"""Now: one screen that is green or red, and why. All judgement is the signals' own (`signals/`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final

from msgspec import Struct

from oncegate.dashboard.causes import CAUSES_MAX, causes_of, destination_rows, surface_rows
from oncegate.dashboard.chart import RANGES, USUAL, chart_of
from oncegate.dashboard.journal_page import About, about
from oncegate.dashboard.not_run_stats import drops_of
from oncegate.dashboard.replays_page import replays_beside
from oncegate.dashboard.request_context import PageResponse, RequestContext, Tools
from oncegate.dashboard.units import shown
from oncegate.dashboard.verdict import GREY, summaries_of, verdict_of
from oncegate.model.states import State
from oncegate.review.surface_decisions import all_decided
from oncegate.review.wording import happened
from oncegate.signals import definitions as d
from oncegate.signals.alerts import Signal, evaluate
from oncegate.signals.definition import Definition, Level, Unit
from oncegate.signals.gauges import NUMBERS, curve
from oncegate.signals.measures import MINUTE_MS, measure
from oncegate.signals.snapshot import HOUR, NOTHING, Counts, Snapshot, by_surface
from oncegate.store import Entry, EntryFilter, LogKind, LogRecord, Session, Tally, What
from oncegate.store.tallies import is_gauge

POINT_MINUTES: Final = 2  # a sparkline of an hour has thirty points
RECENT_MAX: Final = 8
RECENT_READ_MAX: Final = 100
_NO_CHANGE: Final = frozenset({LogKind.SIGNED_IN, LogKind.SIGNED_OUT, LogKind.PLAN_MADE})
HOUR_MS: Final = 3_600_000
COUNTED: Final = "as the gates counted them: one that is killed takes its last second along; no key is lost"


class Hour(Struct, frozen=True):
    """The last hour, a point every two minutes: what was counted, and what gauges showed."""

    points: list[Counts]
    readings: list[list[Tally]]

    def curve(self, definition: Definition) -> Sequence[float | None]:
        """A signal's own course; empty for a gauge that was never read."""
        draw = _CURVES.get(definition.name)
        if draw is None:
            return curve(definition.name, self.readings)
        return [draw(counts) for counts in self.points]


class Tile(Struct, frozen=True):
    """One signal as a person sees it: the worst of all surfaces. `mark` is a limit that can be drawn.

    `where` are the surfaces that the value is about. Limits hold for each surface, so a quiet signal shows
    the highest of them and, in `total`, what all come to.
    """

    definition: Definition
    level: Level
    value: str
    limit: str
    where: str
    total: str
    detail: str
    points: Sequence[float | None]
    mark: float | None
    action: str
    is_known: bool = True

    @property
    def tone(self) -> str:
        """Its colour: grey where it is quiet only because nothing was observed."""
        return self.level.label if self.is_known or self.level is not Level.OK else GREY


def now_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """Everything about this moment."""
    snapshot = measure(session, tools.clock, memory=tools.memory)
    signals = evaluate(snapshot)
    has_worker = any(not one.is_silent for one in snapshot.workers)
    tiles = tiles_of(signals, history(session, snapshot), has_worker=has_worker)
    causes = causes_of(signals, snapshot)
    compares = snapshot.unscanned is not None or session.scanned() > 0
    verdict, told = verdict_of(signals, snapshot), _told(session)
    chosen, marks = visit.query.get("range", USUAL), _marks(told, verdict.since_ms)
    values: dict[str, Any] = {
        "title": "Now",
        "verdict": verdict,
        "chart": chart_of(session, tools.chart, snapshot.now_ms, chosen, marks),
        "ranges": RANGES,
        "summaries": summaries_of(signals, snapshot, compares=compares),
        "causes": causes[:CAUSES_MAX],
        "more_causes": len(causes) - CAUSES_MAX,
        "surfaces": surface_rows(signals, snapshot),
        "destinations": destination_rows(signals, snapshot),
        "tiles": tiles,
        "hour": _hour(snapshot),
        "drops": drops_of(snapshot),
        "oldest": _oldest_in_flight(session),
        "workers": sum(not one.is_silent for one in snapshot.workers),
        "worker_ms": min((one.age_ms for one in snapshot.workers), default=None),
        "recent": _recent(session, snapshot, told),
        "now_ms": snapshot.now_ms,
        "Level": Level,
        **replays_beside(session, visit, None),
        "switched": [one for one in all_decided(session).values() if one.is_not_on],
    }
    return PageResponse("now.html", values)


def tiles_of(signals: Iterable[Signal], hour: Hour, *, has_worker: bool = True) -> list[Tile]:
    """One tile for each signal, with the surface where it is worst; the worst first, then in list order."""
    unknown = set() if any(one.arrivals for one in hour.points) else set(_BY_ARRIVALS)
    unknown |= set() if has_worker else {d.WORKER_ABSENT.name}
    by_name: dict[str, list[Signal]] = {}
    for signal in signals:
        by_name.setdefault(signal.definition.name, []).append(signal)
    order = [one.name for one in d.DEFINITIONS if one.name in by_name]
    tiles = [_tile(by_name[name], hour, is_known=name not in unknown) for name in order]
    return sorted(tiles, key=lambda tile: -tile.level)


def _tile(signals: list[Signal], hour: Hour, *, is_known: bool) -> Tile:
    top = max(signals, key=lambda signal: (signal.level, signal.value))
    alike = [one for one in signals if one.level is top.level]
    definition = top.definition
    is_alarm, is_count = top.level > Level.OK, definition.unit is Unit.COUNT
    total = sum(one.value for one in alike) if is_count else top.value
    value = total if is_alarm else top.value
    is_split = total > value and bool(top.surface)
    places = [one.surface for one in alike if one.surface] if is_alarm else [top.surface] * is_split
    return Tile(
        definition,
        top.level,
        shown(value, definition.unit),
        "" if top.limit is None else shown(top.limit, definition.unit),
        ", ".join(places),
        shown(total, definition.unit) if is_split else "",
        ", ".join(dict.fromkeys(one.detail for one in alike if one.detail)) if is_alarm else "",
        hour.curve(definition),
        top.limit if definition.name in NUMBERS else None,
        top.action if top.surface else definition.action.replace("SURFACE", "…"),
        is_known,
    )


# Signals that say something only while events arrive.
_BY_ARRIVALS: Final = (
    d.REPEATS_HIGH.name, d.REPEATS_ZERO.name, d.RESERVATION_P99.name, d.SENDER_BUGS.name,
    d.LATE_REPLAYS.name, d.ARRIVALS_STOPPED.name,
)  # fmt: skip
_CURVES: Final[dict[str, Callable[[Counts], float]]] = {
    d.REPEATS_HIGH.name: lambda counts: counts.repeat_share,
    d.REPEATS_ZERO.name: lambda counts: float(counts.repeats + counts.retries),
    d.RECONCILIATIONS.name: lambda counts: float(counts.of(What.RECONCILED) + counts.of(What.RECOVER)),
    d.RESERVATION_P99.name: lambda counts: counts.latency_seconds(0.99) or 0.0,
    d.SENDER_BUGS.name: lambda counts: float(
        sum(count for kind, count in counts.classes().items() if kind.is_sender_bug)
    ),
    d.ARRIVALS_STOPPED.name: lambda counts: float(counts.arrivals),
    d.KEYLESS.name: lambda counts: float(counts.of(What.KEYLESS)),
    d.FAILED.name: lambda counts: float(counts.of(What.FAILED)),
    d.LOST.name: lambda counts: float(counts.of(What.LOST)),
    d.LATE_REPLAYS.name: lambda counts: float(
        sum(count for kind, count in counts.classes().items() if kind.label == "late_replay")
    ),
}


def history(session: Session, snapshot: Snapshot) -> Hour:
    """What was counted and read off in the last hour, up to the last whole minute.

    The minute that runs is left out: a point that is not over yet would end every curve in a cliff.
    """
    end = snapshot.now_ms // MINUTE_MS
    points: list[list[Tally]] = [[] for _ in range(HOUR // POINT_MINUTES)]
    for tally in session.tallies(end - HOUR, end):
        points[(tally.minute - end + HOUR) // POINT_MINUTES].append(tally)
    readings = [[tally for tally in point if is_gauge(tally.what)] for point in points]
    return Hour([_together(point) for point in points], readings)


def _together(tallies: list[Tally]) -> Counts:
    return reduce(Counts.plus, by_surface(tallies).values(), NOTHING)


def _hour(snapshot: Snapshot) -> list[tuple[str, int, str]]:
    """The last hour in numbers: what it is called, how many, what it means."""
    all_counts = [snapshot.counts(HOUR, surface) for surface in snapshot.surfaces]

    def total(*kinds: What) -> int:
        return sum(counts.of(kind) for counts in all_counts for kind in kinds)

    return [
        ("arrivals", sum(counts.arrivals for counts in all_counts), COUNTED),
        ("ran", total(What.FRESH, What.RETRY, What.RECOVER), "new, or taken up again"),
        ("replays", total(What.REPLAY), "known already: answered from the ledger, nothing ran"),
        ("asked again", total(What.AWAITED), "came again as they were asked to, and were done meanwhile"),
        ("busy", total(What.BUSY), "the key was being worked on, or waits to be tried again"),
        ("refused", total(What.CONFLICT), "another content under a known key"),
        ("quarantined", total(What.QUARANTINED), "could not be read or dated"),
        ("held", total(What.HELD, What.HOLD), "wait for a person"),
    ]


def _oldest_in_flight(session: Session) -> Entry | None:
    found = session.oldest_entries(EntryFilter((State.IN_FLIGHT,)), 0, 1)
    return found[0] if found else None


def _told(session: Session) -> list[LogRecord]:
    """What people did last, and what was given up."""
    found = session.log_before(None, RECENT_READ_MAX, by_people=True)
    return [one for one in found if one.kind not in _NO_CHANGE]


def _marks(told: Iterable[LogRecord], since_ms: int | None) -> list[tuple[int, str, str]]:
    """Lines of the chart: decisions, and the first sign of what is wrong."""
    found = [(one.at_ms, "decision", f"{one.actor} {happened(one.kind)}") for one in told]
    return found if since_ms is None else [*found, (since_ms, "sign", "first sign")]


def _recent(
    session: Session, snapshot: Snapshot, told: Iterable[LogRecord]
) -> list[tuple[LogRecord, str, About]]:
    """What changed in the last hour."""
    since_ms = snapshot.now_ms - HOUR_MS
    recent = [one for one in told if one.at_ms > since_ms][:RECENT_MAX]
    lanes = session.lane_names([-one.entry_id for one in recent if one.entry_id < 0])
    return [(one, happened(one.kind), about(one, lanes)) for one in recent]
