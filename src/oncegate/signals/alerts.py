"""The evaluation: from a snapshot to signals, each with its value, its limit and its level. Pure.

Ages go by the ledger's own time where it was noted, so that a wall clock that steps does not make
everything look stuck at once. Shares need enough arrivals before they say anything: a quiet night is no
incident.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from oncegate.model.repeats import RepeatClass
from oncegate.model.states import State
from oncegate.signals import definitions as d
from oncegate.signals.definitions import Definition, Level, Thresholds
from oncegate.signals.snapshot import (
    DAY,
    HOUR,
    QUARTER_DAY,
    TEN_MINUTES,
    TWENTY_MINUTES,
    WEEK,
    Counts,
    Snapshot,
)
from oncegate.store import DestinationView, Waiting, What

# A window may do without a repeat if so many were to be expected in it: the shorter, the surer we must be.
_ZERO_WINDOWS: Final = (
    (TEN_MINUTES, 2.0),
    (TWENTY_MINUTES, 1.5),
    (HOUR, 1.0),
    (QUARTER_DAY, 1.0),
    (DAY, 1.0),
)
_SHARE_MAX: Final = 0.05  # a bad week must not make a good one look broken
_HISTORY_MIN: Final = 1_000  # arrivals before a feed's own share of repeats is believed
_PERSONS: Final = (State.HELD, State.UNKNOWN)
_OPEN: Final = (State.HELD, State.UNKNOWN, State.QUARANTINED)


class Signal(Struct, frozen=True):
    """One signal at one moment.

    `surface` is where: a surface or a destination, as the definition says, or empty for the whole ledger.
    """

    definition: Definition
    surface: str
    value: float
    level: Level
    limit: float | None = None
    detail: str = ""

    @property
    def action(self) -> str:
        """What to do, with the place filled in."""
        label = self.definition.label
        return (
            self.definition.action.replace(label.upper(), self.surface) if label else self.definition.action
        )

    @property
    def place(self) -> tuple[str, str]:
        """What tells it apart from all others."""
        return (self.definition.name, self.surface)


def evaluate(snapshot: Snapshot, thresholds: Thresholds | None = None) -> list[Signal]:
    """Evaluates every signal of every surface, the worst first."""
    limits = thresholds or Thresholds()
    found = [
        _leveled(definition, surface, *measured, limits)
        for surface in snapshot.surfaces
        for definition, measured in _of_surface(snapshot, surface, limits)
    ]
    found += [
        _leveled(definition, one.name, *measured, limits)
        for one in snapshot.destinations
        for definition, measured in _of_destination(snapshot, one)
    ]
    if snapshot.clock_ahead_ms is not None:
        ahead = abs(snapshot.clock_ahead_ms) / 1000
        found.append(_leveled(d.CLOCK_OFFSET, "", ahead, "", limits))
    return sorted(found, key=lambda signal: (-signal.level, signal.definition.name, signal.surface))


def worst(signals: Iterable[Signal]) -> Level:
    """The highest level among signals."""
    return max((signal.level for signal in signals), default=Level.OK)


def _leveled(
    definition: Definition, surface: str, value: float, detail: str, thresholds: Thresholds
) -> Signal:
    ticket, page = thresholds.of(definition)
    for level, limit in ((Level.PAGE, page), (Level.TICKET, ticket)):
        if limit is not None and value >= limit:
            return Signal(definition, surface, value, level, limit, detail)
    return Signal(definition, surface, value, Level.OK, ticket if page is None else page, detail)


Measured = tuple[float, str]


def _of_surface(
    snapshot: Snapshot, surface: str, thresholds: Thresholds
) -> Iterator[tuple[Definition, Measured]]:
    ten, hour = snapshot.counts(TEN_MINUTES, surface), snapshot.counts(HOUR, surface)
    waiting = [item for item in snapshot.waiting if item.surface == surface]
    yield d.REPEATS_HIGH, _repeat_share((ten, hour), thresholds)
    if surface not in thresholds.no_repeats:
        yield d.REPEATS_ZERO, _missing_repeats(snapshot, surface, thresholds)
    yield d.IN_FLIGHT_AGE, (_age(snapshot, waiting, (State.IN_FLIGHT,)), "")
    yield d.TWO_RESOURCES, (sum(item.count for item in waiting if item.reason == "two_resources"), "")
    yield d.LATE_REPLAYS, (hour.classes().get(RepeatClass.LATE_REPLAY, 0), "")
    yield d.SENDER_BUGS, _sender_bugs(hour)
    yield d.RESERVATION_P99, (ten.latency_seconds(0.99) or 0.0, "")
    yield d.RECONCILIATIONS, (hour.of(What.RECONCILED), "")
    yield d.QUARANTINES, (ten.of(What.QUARANTINED), _reasons(waiting, (State.QUARANTINED,)))
    yield d.WAITING, (_count(waiting, _OPEN), _reasons(waiting, _OPEN))
    yield d.OVERDUE, (_age(snapshot, waiting, _PERSONS), _reasons(waiting, _PERSONS))
    yield d.DEADLINE, (max((late_seconds(snapshot, item) for item in waiting), default=0.0), "")
    yield d.LAPSED, (sum(item.lapsed for item in waiting), "")
    yield d.LOST, (hour.of(What.LOST), "")


def _of_destination(snapshot: Snapshot, one: DestinationView) -> Iterator[tuple[Definition, Measured]]:
    behind = f"{one.events} events not delivered" if one.blocked else ""
    yield d.LANES_BLOCKED, (one.blocked, behind)
    yield d.LANE_BLOCKED_AGE, (blocked_seconds(snapshot, one), behind)
    yield d.DELIVERY_AGE, (undelivered_seconds(snapshot, one), f"{one.events} events wait")


def blocked_seconds(snapshot: Snapshot, one: DestinationView) -> float:
    """How long the key that was blocked first has been so; 0 where none is."""
    return _seconds_since(snapshot, one.oldest_blocked_at_ms)


def undelivered_seconds(snapshot: Snapshot, one: DestinationView) -> float:
    """How old the oldest event is that is not delivered; 0 where there is none."""
    return _seconds_since(snapshot, one.oldest_created_at_ms)


def _seconds_since(snapshot: Snapshot, at_ms: int | None) -> float:
    return 0.0 if at_ms is None else max(0, snapshot.now_ms - at_ms) / 1000


def _repeat_share(windows: Iterable[Counts], thresholds: Thresholds) -> Measured:
    """The larger share of the last ten minutes and the last hour, if there were enough repeats to tell."""
    shares = [
        (counts.repeats / counts.arrivals, f"{counts.repeats} of {counts.arrivals}")
        for counts in windows
        if counts.repeats >= thresholds.repeats_min
    ]
    return max(shares, default=(0.0, ""))


def _missing_repeats(snapshot: Snapshot, surface: str, thresholds: Thresholds) -> Measured:
    """How many repeats should have come in a window that had none, over how sure that window must be."""
    share = _usual_share(snapshot, surface, thresholds)
    found = [
        (counts.arrivals * share / surer, f"none of {counts.arrivals} in {length} min; usual: {share:.1%}")
        for length, surer in _ZERO_WINDOWS
        if not (counts := snapshot.counts(length, surface)).repeats and counts.arrivals
    ]
    return max(found, default=(0.0, ""))


def _usual_share(snapshot: Snapshot, surface: str, thresholds: Thresholds) -> float:
    """A feed's own share of repeats in a week; one that never had any is held to the low end of normal."""
    week = snapshot.counts(WEEK, surface)
    if week.arrivals < _HISTORY_MIN or not week.repeats:
        return thresholds.zero_share
    return min(week.repeats / week.arrivals, _SHARE_MAX)


def _sender_bugs(hour: Counts) -> Measured:
    bugs = {kind: count for kind, count in hour.classes().items() if kind.is_sender_bug and count}
    return sum(bugs.values()), ", ".join(f"{count} {kind.label}" for kind, count in sorted(bugs.items()))


def _count(waiting: Iterable[Waiting], states: tuple[State, ...]) -> int:
    return sum(item.count for item in waiting if item.state in states)


def _reasons(waiting: Iterable[Waiting], states: tuple[State, ...]) -> str:
    return ", ".join(
        f"{item.count} {item.reason or item.state.label}" for item in waiting if item.state in states
    )


def _age(snapshot: Snapshot, waiting: Iterable[Waiting], states: tuple[State, ...]) -> float:
    return max((age_seconds(snapshot, item) for item in waiting if item.state in states), default=0.0)


def age_seconds(snapshot: Snapshot, item: Waiting) -> float:
    """How long the oldest of some open entries has waited."""
    if item.oldest_ticks is not None:
        return max(0, snapshot.now_ticks - item.oldest_ticks) / 1000
    return max(0, snapshot.now_ms - item.oldest_at_ms) / 1000


def late_seconds(snapshot: Snapshot, item: Waiting) -> float:
    """How long ago the oldest of some entries should have been decided; 0 where there is time left."""
    if item.decide_within_ms is None:
        return 0.0
    return max(0.0, age_seconds(snapshot, item) - item.decide_within_ms / 1000)
