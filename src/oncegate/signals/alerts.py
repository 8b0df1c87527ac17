"""The evaluation: from a snapshot to signals, each with its value, its limit and its level. Pure.

Ages go by the ledger's own time where it was noted, so that a wall clock that steps does not make
everything look stuck at once. Shares need enough arrivals before they say anything: a quiet night is no
incident.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.lanes.circuit_status import DOWNSTREAM
from oncegate.model.repeats import RepeatClass
from oncegate.model.states import State
from oncegate.signals import definitions as d
from oncegate.signals.definition import Definition, Level
from oncegate.signals.definitions import Thresholds
from oncegate.signals.seconds import evidence
from oncegate.signals.snapshot import (
    DAY,
    HOUR,
    NOTHING,
    QUARTER_DAY,
    TEN_MINUTES,
    TWENTY_MINUTES,
    WEEK,
    Counts,
    Snapshot,
)
from oncegate.store import DestinationView, Waiting, What
from oncegate.store.feed import ReaderPosition
from oncegate.store.notices import DriftWord

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
_QUARANTINED: Final = (State.QUARANTINED,)
_OPEN: Final = (State.HELD, State.UNKNOWN, State.QUARANTINED)
# No arrival in a window of so many minutes matters if every day of a week had so many.
_STOPPED_WINDOWS: Final = ((TEN_MINUTES, 20), (HOUR, 5))
# What is counted from arrivals: without any there is nothing to judge.
_COUNTED: Final = frozenset(
    one.name
    for one in (
        d.REPEATS_HIGH, d.REPEATS_ZERO, d.LATE_REPLAYS, d.SENDER_BUGS, d.RESERVATION_P99,
        d.RECONCILIATIONS, d.KEYLESS,
    )
)  # fmt: skip
_NEVER_SEEN_SECONDS: Final = 60.0  # as absent as a surface that no worker ever looked after counts


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
    limits = snapshot.thresholds if thresholds is None else thresholds.under(snapshot.decided)
    found = [
        _known(snapshot, _leveled(definition, surface, *measured, limits))
        for surface in snapshot.surfaces
        for definition, measured in _of_surface(snapshot, surface, limits)
    ]
    found += [
        _leveled(definition, one.name, *measured, limits)
        for one in snapshot.destinations
        for definition, measured in _of_destination(snapshot, one)
    ]
    found += [
        _leveled(d.CIRCUIT_OPEN, name, open_seconds(snapshot, name), circuit.error, limits)
        for name, circuit in snapshot.circuits.items()
        if name.startswith(DOWNSTREAM)
    ]
    found += [
        _leveled(
            d.FEED_LAG, reader_name(one), unread_seconds(snapshot, one), f"{one.behind} unread", limits
        )
        for one in snapshot.readers
    ]
    found += [_drift(name, word, limits) for name, word in snapshot.drifts.items()]
    if snapshot.surfaces or snapshot.watchers:
        found.append(_leveled(d.WATCH_ABSENT, "", *watch_absent(snapshot), limits))
    if snapshot.clock_ahead_ms is not None:
        ahead = abs(snapshot.clock_ahead_ms) / 1000
        found.append(_leveled(d.CLOCK_OFFSET, "", ahead, "", limits))
    if snapshot.unscanned is not None:
        held = snapshot.unscanned.waits_for
        words = f"waits for {held}" if held else ""
        found.append(_leveled(d.SCAN_BEHIND, "", unscanned_seconds(snapshot), words, limits))
    found += _proofs(snapshot, limits)
    if snapshot.went_back:
        found.append(_leveled(d.WENT_BACK, "", len(snapshot.went_back), snapshot.went_back[-1], limits))
    return sorted(found, key=lambda signal: (-signal.level, signal.definition.name, signal.surface))


def _drift(name: str, word: DriftWord, limits: Thresholds) -> Signal:
    """The signal of a partner; unknown where the comparison has not caught up."""
    if word.is_behind:
        return Signal(d.DRIFT, name, 0, Level.UNKNOWN, detail="the comparison has not read all calls yet")
    detail = f"latest: {', '.join(word.latest)}" if word.latest else ""
    return _leveled(d.DRIFT, name, word.windows, detail, limits)


def two_resources(snapshot: Snapshot, surface: str) -> Measured:
    """Keys of a surface that own two resources: by a downstream's answer, or by a late worker's."""
    items = [one for one in snapshot.waiting if (one.surface, one.reason) == (surface, "two_resources")]
    keys, told = _seconds(snapshot, surface, of_key=True)
    return float(sum(item.count for item in items) + keys), told


def two_of_target(snapshot: Snapshot, surface: str) -> Measured:
    """Targets of a surface with two resources."""
    return _seconds(snapshot, surface, of_key=False)


def _seconds(snapshot: Snapshot, surface: str, *, of_key: bool) -> Measured:
    """How many keys or targets, and the first finding with the number of the others."""
    place = (surface, of_key)
    counts = [one for one in snapshot.second_counts if (one.surface, one.is_of_key) == place]
    found = [one for one in snapshot.seconds if (one.surface, one.is_of_key) == place]
    told = evidence(found, sum(one.findings for one in counts))
    return float(sum(one.subjects for one in counts)), told


def unscanned_seconds(snapshot: Snapshot) -> float:
    """How long ago the oldest event came that the content scan has not looked at."""
    return (
        0.0 if snapshot.unscanned is None else _seconds_since(snapshot, snapshot.unscanned.received_at_ms)
    )


def snapshot_overdue_seconds(snapshot: Snapshot) -> float:
    """How long a snapshot is overdue; a failed one is from its first second on."""
    word = snapshot.snapshots
    if word is None or not word.every_ms:
        return 0.0
    late_ms = snapshot.now_ticks - word.ticks - word.every_ms * 5 // 4
    return max(late_ms / 1000, 1.0 if word.failure else 0.0) if word.ticks else 1.0


def _proofs(snapshot: Snapshot, limits: Thresholds) -> Iterator[Signal]:
    """Whether snapshots and the journal go on."""
    if snapshot.snapshots is not None:
        overdue = snapshot_overdue_seconds(snapshot)
        yield _leveled(d.SNAPSHOT_OVERDUE, "", overdue, snapshot.snapshots.failure or "", limits)
    if snapshot.journal is not None:
        overdue = seal_overdue_seconds(snapshot)
        yield _leveled(d.SEAL_OVERDUE, "", overdue, snapshot.journal.problem, limits)


def seal_overdue_seconds(snapshot: Snapshot) -> float:
    """How long the oldest record waits to be sealed beyond the interval; a fork pages at once."""
    word = snapshot.journal
    if word is None:
        return 0.0
    late_ms = 0 if word.oldest_ms is None else snapshot.now_ms - word.oldest_ms - word.every_ms * 5 // 4
    return max(late_ms / 1000, float(d.SEAL_OVERDUE.page or 0) if word.problem else 0.0)


def worst(signals: Iterable[Signal]) -> Level:
    """The highest level among signals; UNKNOWN where nothing arrived within an hour to tell by (I28)."""
    found = list(signals)
    level = max((signal.level for signal in found), default=Level.UNKNOWN)
    if level is not Level.OK:
        return level
    counted = [signal for signal in found if signal.definition.name in _COUNTED]
    return Level.OK if any(signal.level is Level.OK for signal in counted) else Level.UNKNOWN


def _known(snapshot: Snapshot, signal: Signal) -> Signal:
    """A signal that nothing was seen to tell by is unknown, not right."""
    if signal.level is not Level.OK:
        return signal
    name = signal.definition.name
    seen = [snapshot.counts(window, signal.surface).arrivals for window in (TEN_MINUTES, HOUR)]
    if name in _COUNTED and not any(seen):
        return replace(signal, level=Level.UNKNOWN, detail="no arrivals in the last hour")
    if name == d.DOUBLED.name and unscanned_seconds(snapshot) >= (d.SCAN_BEHIND.ticket or 0.0):
        return replace(signal, level=Level.UNKNOWN, detail="the content scan is behind")
    return signal


def watch_absent(snapshot: Snapshot) -> Measured:
    """How long ago a watch last looked, once that is too long; 0 before."""
    if not snapshot.watchers:
        day = [counts.arrivals for counts in snapshot.windows.get(DAY, {}).values()]
        hour = [counts.arrivals for counts in snapshot.windows.get(HOUR, {}).values()]
        never = sum(day) > sum(hour)
        return (_NEVER_SEEN_SECONDS, "no watch has looked at this ledger") if never else (0.0, "")
    last = min(snapshot.watchers, key=lambda one: one.age_ms)
    return (last.age_ms / 1000, f"last: {last.name}") if last.is_silent else (0.0, "")


def _leveled(
    definition: Definition, surface: str, value: float, detail: str, thresholds: Thresholds
) -> Signal:
    ticket, page = thresholds.of(definition, surface)
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
    yield d.RETRIED_FOR, (max((item.tried_ms for item in waiting), default=0) / 1000, "")
    yield d.TWO_RESOURCES, two_resources(snapshot, surface)
    yield d.TARGETS, two_of_target(snapshot, surface)
    yield d.FAILED, (hour.of(What.FAILED), "")
    yield d.KEYLESS, (hour.of(What.KEYLESS), ", ".join(snapshot.keyless.get(surface, ())))
    yield d.LATE_REPLAYS, (hour.classes().get(RepeatClass.LATE_REPLAY, 0), "")
    yield d.SENDER_BUGS, _sender_bugs(hour)
    yield d.RESERVATION_P99, (ten.latency_seconds(0.99) or 0.0, "")
    yield d.RECONCILIATIONS, (hour.of(What.RECONCILED) + hour.of(What.RECOVER), "")
    yield d.QUARANTINES, (_count(waiting, _QUARANTINED), _reasons(waiting, _QUARANTINED))
    yield d.WAITING, (_count(waiting, _OPEN), _reasons(waiting, _OPEN))
    yield d.OVERDUE, (_age(snapshot, waiting, _OPEN), _reasons(waiting, _OPEN))
    yield d.DEADLINE, (max((late_seconds(snapshot, item) for item in waiting), default=0.0), "")
    yield d.LAPSED, (sum(item.lapsed for item in waiting), "")
    yield d.LOST, (hour.of(What.LOST), "")
    yield d.DOUBLED, (sum(one.count for one in snapshot.doubled if one.surface == surface), "")
    yield d.ARRIVALS_STOPPED, _stopped(snapshot, surface)
    yield d.WORKER_ABSENT, worker_absent(snapshot, surface)


def _of_destination(snapshot: Snapshot, one: DestinationView) -> Iterator[tuple[Definition, Measured]]:
    behind = f"{one.events} events not delivered" if one.blocked else ""
    yield d.LANES_BLOCKED, (one.blocked, behind)
    yield d.LANE_BLOCKED_AGE, (blocked_seconds(snapshot, one), behind)
    yield d.DELIVERY_AGE, (undelivered_seconds(snapshot, one), f"{one.events} events wait")
    circuit = snapshot.circuits.get(one.name)
    yield d.CIRCUIT_OPEN, (open_seconds(snapshot, one.name), "" if circuit is None else circuit.error)


def blocked_seconds(snapshot: Snapshot, one: DestinationView) -> float:
    """How long the key that was blocked first has been so; 0 where none is."""
    return _seconds_since(snapshot, one.oldest_blocked_at_ms)


def undelivered_seconds(snapshot: Snapshot, one: DestinationView) -> float:
    """How old the oldest event is that is not delivered; 0 where there is none."""
    return _seconds_since(snapshot, one.oldest_created_at_ms)


def open_seconds(snapshot: Snapshot, destination: str) -> float:
    """How long a destination's circuit has not been closed; 0 where it is."""
    circuit = snapshot.circuits.get(destination)
    return _seconds_since(snapshot, None if circuit is None else circuit.since_ms)


def unread_seconds(snapshot: Snapshot, reader: ReaderPosition) -> float:
    """How old the oldest event is that a reader has not acknowledged."""
    return _seconds_since(snapshot, reader.oldest_at_ms)


def reader_name(reader: ReaderPosition) -> str:
    """What tells a reader apart from those of other tenants."""
    return f"{reader.tenant}/{reader.reader}" if reader.tenant else reader.reader


def worker_absent(snapshot: Snapshot, surface: str) -> Measured:
    """How long ago a worker last looked after a surface, once that is too long; 0 before."""
    found = [one for one in snapshot.workers if surface in one.word.surfaces]
    if not found:
        older = snapshot.counts(DAY, surface).arrivals - snapshot.counts(HOUR, surface).arrivals
        return (_NEVER_SEEN_SECONDS, "no worker has looked after it") if older > 0 else (0.0, "")
    last = min(found, key=lambda one: one.age_ms)
    return (last.age_ms / 1000, f"last: {last.name}") if last.is_silent else (0.0, "")


def _stopped(snapshot: Snapshot, surface: str) -> Measured:
    """The fewest arrivals that any day of the past week had by now, where today has none."""
    found = []
    for length, least in _STOPPED_WINDOWS:
        past = [day.get(surface, NOTHING).arrivals for day in snapshot.past.get(length, ())]
        fewest = min(past, default=0)
        if fewest >= least and not snapshot.counts(length, surface).arrivals:
            found.append(
                (float(fewest), f"none in {length} min; {fewest} or more on each of {len(past)} days")
            )
    return max(found, default=(0.0, ""))


def _seconds_since(snapshot: Snapshot, at_ms: int | None) -> float:
    return 0.0 if at_ms is None else max(0, snapshot.now_ms - at_ms) / 1000


def _repeat_share(windows: Iterable[Counts], thresholds: Thresholds) -> Measured:
    """The larger share of the last ten minutes and the last hour, if there were enough repeats to tell."""
    shares = [
        (counts.repeat_share, f"{counts.repeats} of {counts.unasked}")
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
        if not ((counts := snapshot.counts(length, surface)).repeats or counts.retries) and counts.arrivals
    ]
    return max(found, default=(0.0, ""))


def _usual_share(snapshot: Snapshot, surface: str, thresholds: Thresholds) -> float:
    """A feed's own share of repeats in a week; one that never had any is held to the low end of normal."""
    week = snapshot.counts(WEEK, surface)
    if week.unasked < _HISTORY_MIN or not week.repeats:
        return thresholds.zero_share
    return min(week.repeat_share, _SHARE_MAX)


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
