"""Recorded weeks: a steady one, made by a seeded script and kept beside it, and incidents laid over it.

`python -m tests.signals.weeks > tests/signals/steady_week.txt` writes it again; a test compares. Each line
is a surface and a kind, and the counts of its 10,080 minutes from Monday 00:00 UTC on, packed.
"""

from __future__ import annotations

import base64
import math
import random
import sys
import zlib
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

from oncegate.model.repeats import RepeatClass
from oncegate.signals.measures import PAST_DAYS, PAST_WINDOWS
from oncegate.signals.snapshot import WINDOWS, Counts, Snapshot, Watcher, WatchWord, WorkerStatus
from oncegate.store import Waiting, What
from oncegate.store.notices import WorkerWord
from oncegate.store.tallies import of_class, of_latency

SEED = 20251027
WEEK_MINUTES = 10_080
MONDAY = 29_359_440  # Monday 27 October 2025, 00:00 UTC, in minutes since 1970
FILE = Path(__file__).with_name("steady_week.txt")
BUSY, QUIET = "portbase.cis", "routes"
DAY = 1440

Minutes = dict[tuple[str, int], list[int]]  # (surface, what) -> count of each minute


def steady_week() -> Minutes:
    """Reads the recorded week; the one before it was the same."""
    found: Minutes = {}
    for line in FILE.read_text("ascii").splitlines():
        surface, what, packed = line.split()
        found[surface, int(what)] = list(zlib.decompress(base64.b85decode(packed))) * 2
    return found


def make_week(seed: int = SEED) -> Minutes:
    """Nights, weekends, and 1 to 3 % of arrivals known already, hour by hour another share."""
    rng = random.Random(seed)
    week: Minutes = {}
    for surface, peak in ((BUSY, 60.0), (QUIET, 2.0)):
        fresh, replays = [], []
        share = 0.02
        for minute in range(WEEK_MINUTES):
            if minute % 60 == 0:
                share = rng.uniform(0.01, 0.03)
            arrivals = _poisson(rng, peak * _activity(minute))
            known = sum(rng.random() < share for _ in range(arrivals))
            fresh.append(arrivals - known)
            replays.append(known)
        week[surface, What.FRESH] = fresh
        week[surface, What.REPLAY] = replays
        week[surface, of_class(RepeatClass.EXPECTED_REPLAY)] = replays
        week[surface, of_latency(700)] = fresh
    return week


def _activity(minute: int) -> float:
    hour, is_weekend = minute % DAY / 60, minute // DAY >= 5
    by_hour = 1.0 if 6 <= hour < 18 else 0.4 if 5 <= hour < 22 else 0.08
    return by_hour * (0.3 if is_weekend else 1.0)


def _poisson(rng: random.Random, mean: float) -> int:
    limit, count, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        count += 1
        product *= rng.random()
    return count


def pack(week: Minutes) -> str:
    """The week as it is kept: one line a surface and kind."""
    return "".join(
        f"{surface} {int(what)} {base64.b85encode(zlib.compress(bytes(counts), 9)).decode()}\n"
        for (surface, what), counts in week.items()
    )


class Recorded:
    """Two weeks of minutes, the second of which is looked at; minute 0 is its Monday, 00:00."""

    def __init__(self, minutes: Minutes) -> None:
        self._sums = {place: [0, *accumulate(counts)] for place, counts in minutes.items()}

    def at(self, minute: int, waiting: tuple[Waiting, ...] = (), ahead_ms: int | None = None) -> Snapshot:
        """What an evaluation at the end of a minute sees."""
        end = WEEK_MINUTES + minute + 1
        windows = {length: self._window(max(0, end - length), end) for length in WINDOWS}
        past = {
            length: tuple(
                self._window(max(0, end - day * DAY - length), max(0, end - day * DAY))
                for day in range(1, PAST_DAYS + 1)
            )
            for length in PAST_WINDOWS
        }
        surfaces = tuple({surface for surface, _ in self._sums})
        worker = WorkerStatus("host, process 7", 9_000, WorkerWord(5_000, surfaces))
        now_ms = (MONDAY + minute) * 60_000
        ticks = 10**9 + minute * 60_000
        watcher = Watcher("host, process 7", 9_000, WatchWord(60_000))
        return Snapshot(
            now_ms, ticks, windows, waiting, ahead_ms, past=past, workers=(worker,), watchers=(watcher,)
        )

    def _window(self, begin: int, end: int) -> dict[str, Counts]:
        found: dict[str, dict[int, tuple[int, int]]] = {}
        for (surface, what), sums in self._sums.items():
            count = sums[end] - sums[begin]
            if count:
                found.setdefault(surface, {})[what] = (count, 0)
        return {surface: Counts(sums) for surface, sums in found.items()}


def with_incident(change: Callable[[Minutes], None]) -> Recorded:
    """The steady week with something laid over it; minutes of the second week begin at WEEK_MINUTES."""
    week = {place: list(counts) for place, counts in steady_week().items()}
    change(week)
    return Recorded(week)


def add(week: Minutes, surface: str, what: int, minute: int, count: int = 1) -> None:
    """Lets something happen in a minute of the second week."""
    week.setdefault((surface, what), [0] * (2 * WEEK_MINUTES))[WEEK_MINUTES + minute] += count


def monday_storm(week: Minutes) -> None:
    """17 notifications of 39 are delivered two to six times, from 05:30 on: 48 arrivals too many."""
    rng = random.Random(SEED)
    deliveries = [2, 3, 4, 5, 6] * 3 + [2, 3]
    for extra in deliveries:
        for _ in range(extra - 1):
            minute = 330 + rng.randrange(30)
            add(week, QUIET, What.REPLAY, minute)
            add(week, QUIET, of_class(RepeatClass.EXPECTED_REPLAY), minute)
    for _ in range(39):
        add(week, QUIET, What.FRESH, 330 + rng.randrange(30))


def daylight_saving(week: Minutes) -> None:
    """Sunday, 01:27 UTC: an event is fired again 27 real minutes later, and 18 more follow."""
    rng = random.Random(SEED)
    first = 6 * DAY + 87
    for minute in [first, *sorted(first + rng.randrange(1, 40) for _ in range(18))]:
        add(week, QUIET, What.REPLAY, minute)
        add(week, QUIET, of_class(RepeatClass.EXPECTED_REPLAY), minute)


def broken_keys(week: Minutes) -> None:
    """Wednesday, 10:00: a deployment changes the key, and every repeat is taken for new from then on."""
    begin = WEEK_MINUTES + 2 * DAY + 600
    fresh, replays = week[BUSY, What.FRESH], week[BUSY, What.REPLAY]
    for minute in range(begin, 2 * WEEK_MINUTES):
        fresh[minute] += replays[minute]
        replays[minute] = 0
    week[BUSY, of_class(RepeatClass.EXPECTED_REPLAY)] = replays


if __name__ == "__main__":
    sys.stdout.write(pack(make_week()))
