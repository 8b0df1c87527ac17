"""The history of gauges: what the watch read off in each minute, kept among the counters.

A gauge (an age, a number of open things, a clock's offset) cannot be counted back from arrivals: it has a
history only where a worker watches. One value for the whole ledger: the sum where things are counted,
else the worst. Zero is not stored; the reading's time is. Folded and forgotten with the other counters.
Must never be read by an evaluation: signals go by the ledger itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from oncegate.signals import definitions as d
from oncegate.signals.alerts import Signal
from oncegate.signals.definition import Unit
from oncegate.store import Observations, Tally
from oncegate.store.tallies import of_gauge

# The numbers are stored; never renumber. 0 counts the looks.
NUMBERS: Final = {
    d.IN_FLIGHT_AGE.name: 1,
    d.TWO_RESOURCES.name: 2,
    d.WAITING.name: 3,
    d.OVERDUE.name: 4,
    d.DEADLINE.name: 5,
    d.LAPSED.name: 6,
    d.CLOCK_OFFSET.name: 7,
    d.LANES_BLOCKED.name: 8,
    d.LANE_BLOCKED_AGE.name: 9,
    d.DELIVERY_AGE.name: 10,
    d.DOUBLED.name: 11,
    d.QUARANTINES.name: 12,
    d.CIRCUIT_OPEN.name: 13,
    d.FEED_LAG.name: 14,
    d.WORKER_ABSENT.name: 15,
    d.SCAN_BEHIND.name: 16,
    d.TARGETS.name: 17,
    d.DRIFT.name: 18,
    d.RETRIED_FOR.name: 19,
    d.WATCH_ABSENT.name: 20,
    d.WENT_BACK.name: 21,
    d.SNAPSHOT_OVERDUE.name: 22,
}
LOOKED: Final = 0
EVERYWHERE: Final = ""  # no surface has this name
_SCALE: Final = 1000  # totals are whole numbers

Points = Sequence[Sequence[Tally]]


def reading(signals: Iterable[Signal], minute: int) -> Observations:
    """What one look found, as counters of its minute."""
    values: dict[str, float] = {}
    for signal in signals:
        definition = signal.definition
        if definition.name in NUMBERS:
            join = _plus if definition.unit is Unit.COUNT else max
            values[definition.name] = join(values.get(definition.name, 0.0), signal.value)
    found = [(NUMBERS[name], round(value * _SCALE)) for name, value in values.items()]
    tallies = [Tally(EVERYWHERE, minute, of_gauge(number), 1, total) for number, total in found if total]
    return Observations((Tally(EVERYWHERE, minute, of_gauge(LOOKED), 1), *tallies))


def _plus(one: float, other: float) -> float:
    return one + other


def curve(name: str, points: Points) -> list[float | None]:
    """A gauge at each point, None where it was not read; empty where it never was, or for no gauge."""
    if name not in NUMBERS:
        return []
    found = [_mean(point, of_gauge(NUMBERS[name])) for point in points]
    return found if any(value is not None for value in found) else []


def _mean(point: Sequence[Tally], what: int) -> float | None:
    looks = sum(tally.count for tally in point if tally.what == of_gauge(LOOKED))
    total = sum(tally.total for tally in point if tally.what == what)
    return total / looks / _SCALE if looks else None
