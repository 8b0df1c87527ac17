"""Everything the evaluation looks at, as values: sums over windows of time, what is open, the clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from oncegate.lanes.circuit_status import CircuitView
from oncegate.model.repeats import RepeatClass
from oncegate.signals.definitions import Thresholds
from oncegate.store import DestinationView, Doubled, SecondCount, SecondResource, Tally, Unscanned, Waiting
from oncegate.store.feed import ReaderPosition
from oncegate.store.notices import DriftWord, WorkerWord
from oncegate.store.tallies import (
    ARRIVALS,
    REPEATS,
    RETRIES,
    class_of,
    is_gauge,
    latency_bound_us,
    reason_of,
)

TEN_MINUTES: Final = 10
TWENTY_MINUTES: Final = 20
HOUR: Final = 60
QUARTER_DAY: Final = 360
DAY: Final = 1440
WEEK: Final = 10_080
# In minutes, up to and with the present one.
SILENT_AFTER_MS: Final = 45_000  # a worker says every 15 s that it is there
WINDOWS: Final = (TEN_MINUTES, TWENTY_MINUTES, HOUR, QUARTER_DAY, DAY, WEEK)


class Counts(Struct, frozen=True):
    """What was counted at one surface in one window, by kind."""

    sums: dict[int, tuple[int, int]] = {}

    def of(self, what: int) -> int:
        """How often something was counted."""
        return self.sums.get(what, (0, 0))[0]

    def plus(self, other: Counts) -> Counts:
        """The sum of both."""
        sums = dict(self.sums)
        for what, (count, total) in other.sums.items():
            before = sums.get(what, (0, 0))
            sums[what] = (before[0] + count, before[1] + total)
        return Counts(sums)

    @property
    def arrivals(self) -> int:
        """Everything that arrived."""
        return sum(self.of(what) for what in ARRIVALS)

    @property
    def repeats(self) -> int:
        """Arrivals of keys that were known, but for retries."""
        return sum(self.of(what) for what in REPEATS)

    @property
    def retries(self) -> int:
        """Arrivals of events that had not been done, so that their sender was asked to come again."""
        return sum(self.of(what) for what in RETRIES)

    @property
    def unasked(self) -> int:
        """Arrivals that the sender decided on: all but the retries."""
        return self.arrivals - self.retries

    @property
    def repeat_share(self) -> float:
        """Repeats among the arrivals that the sender decided on."""
        return self.repeats / self.unasked if self.unasked else 0.0

    def classes(self) -> dict[RepeatClass, int]:
        """Repeats by class."""
        found = {class_of(what): count for what, (count, _) in self.sums.items()}
        return {kind: count for kind, count in found.items() if kind is not None}

    def reasons(self) -> dict[str, int]:
        """New events in quarantine by reason."""
        found = {reason_of(what): count for what, (count, _) in self.sums.items()}
        return {reason: count for reason, count in found.items() if reason is not None}

    def latency_seconds(self, share: float) -> float | None:
        """Within which time so large a share of reservations was answered; an upper bound."""
        buckets = sorted(
            (bound, count)
            for what, (count, _) in self.sums.items()
            if (bound := latency_bound_us(what)) is not None
        )
        wanted, seen = share * sum(count for _, count in buckets), 0
        for bound, count in buckets:
            seen += count
            if seen >= wanted:
                return bound / 1e6
        return None


NOTHING: Final = Counts()


class WorkerStatus(Struct, frozen=True):
    """What a worker said of itself, and how long ago."""

    name: str
    age_ms: int
    word: WorkerWord

    @property
    def is_silent(self) -> bool:
        """Whether it has missed several of its own runs."""
        return self.age_ms > 3 * self.word.every_ms + SILENT_AFTER_MS


class WatchWord(Struct, frozen=True):
    """What a watch says at each look: how often it looks, and by which limits."""

    every_ms: int
    thresholds: Thresholds = Thresholds()


class Watcher(Struct, frozen=True):
    """What a watch said of itself, and how long ago."""

    name: str
    age_ms: int
    word: WatchWord

    @property
    def is_silent(self) -> bool:
        """Whether it has missed several of its own looks."""
        return self.age_ms > 3 * self.word.every_ms + SILENT_AFTER_MS


class SnapshotsWord(Struct, frozen=True):
    """What the ledger knows of its snapshots: how often they are due, the last one, and why none came."""

    every_ms: int = 0
    ticks: int = 0
    failure: str | None = None


class JournalWord(Struct, frozen=True):
    """How far the log is sealed, when the oldest record that is not was written, and why none is sealed."""

    position: int = 0
    every_ms: int = 0
    oldest_ms: int | None = None
    problem: str = ""


class Snapshot(Struct, frozen=True):
    """One moment. `windows` has the counts by length of window and surface.

    `past` has the counts of the same windows on earlier days, yesterday first; `circuits` those that are
    not closed. `keyless` has the steps of each surface that took no key recently. `drifts` has the partners
    whose windows were compared, with how many differ. `went_back` has the open incidents of a ledger that
    went back in time.
    not closed. `decided` are limits that operators have set. `keyless` has the steps of each surface that
    took no key recently.
    """

    now_ms: int
    now_ticks: int
    windows: dict[int, dict[str, Counts]]
    waiting: tuple[Waiting, ...] = ()
    clock_ahead_ms: int | None = None
    destinations: tuple[DestinationView, ...] = ()
    doubled: tuple[Doubled, ...] = ()
    readers: tuple[ReaderPosition, ...] = ()
    circuits: dict[str, CircuitView] = {}
    workers: tuple[WorkerStatus, ...] = ()
    past: dict[int, tuple[dict[str, Counts], ...]] = {}
    unscanned: Unscanned | None = None
    seconds: tuple[SecondResource, ...] = ()  # the oldest ones
    keyless: dict[str, tuple[str, ...]] = {}
    drifts: dict[str, DriftWord] = {}
    watchers: tuple[Watcher, ...] = ()
    decided: Thresholds = Thresholds()
    went_back: tuple[str, ...] = ()  # open incidents of a ledger that went back in time
    snapshots: SnapshotsWord | None = None  # None where none is ever taken
    second_counts: tuple[SecondCount, ...] = ()
    journal: JournalWord | None = None  # None where nothing is ever sealed

    def counts(self, window: int, surface: str) -> Counts:
        """What was counted at a surface in a window."""
        return self.windows.get(window, {}).get(surface, NOTHING)

    @property
    def thresholds(self) -> Thresholds:
        """The limits to go by: those of the watch that looked last, under those that operators have set."""
        last = min(self.watchers, key=lambda one: one.age_ms, default=None)
        return (Thresholds() if last is None else last.word.thresholds).under(self.decided)

    @property
    def surfaces(self) -> list[str]:
        """Every surface that anything is known of."""
        named = {surface for counts in self.windows.values() for surface in counts}
        waiting = {item.surface for item in self.waiting}
        doubled = {one.surface for one in self.doubled}
        doubled |= {one.surface for one in self.second_counts if one.surface}
        return sorted(named | waiting | doubled)


def added(one: dict[str, Counts], other: dict[str, Counts]) -> dict[str, Counts]:
    """Adds up what was counted in two windows."""
    return {name: one.get(name, NOTHING).plus(other.get(name, NOTHING)) for name in {**one, **other}}


def by_surface(tallies: Iterable[Tally]) -> dict[str, Counts]:
    """Sorts sums by surface; several of one kind are added up, and readings of gauges left out."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for tally in tallies:
        if is_gauge(tally.what):
            continue
        sums = found.setdefault(tally.surface, {})
        count, total = sums.get(tally.what, (0, 0))
        sums[tally.what] = (count + tally.count, total + tally.total)
    return {surface: Counts(sums) for surface, sums in found.items()}
