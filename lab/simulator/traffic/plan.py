"""A schedule of traffic as a value, and how one is made from a seed."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lab.simulator.schedule import Fault, FaultKind, describe_fault
from lab.simulator.workload import seconds_of
from oncegate.crashpoints import LANE_CRASH_POINTS

WORKERS: Final = 2
KEYS: Final = ("a", "b", "c")
ENTRIES: Final = 2  # that wait for a person from the beginning
BUSY_SECONDS: Final = 60.0
POINTS: Final = (*LANE_CRASH_POINTS, "commit.before", "commit.after")
KINDS: Final = tuple(kind for kind in FaultKind if kind is not FaultKind.FAILOVER)
TRAFFIC_EVERY: Final = 16  # seeds of the gate's schedules for one of these, which take four times as long
_AT_POINTS: Final = (FaultKind.CRASH_AT_POINT, FaultKind.STALL_AT_POINT)
# The first fault of each schedule: all of them in turn, so that none is left to chance.
_IN_TURN: Final = (
    *((kind, "") for kind in KINDS if kind not in _AT_POINTS),
    *((kind, name) for kind in _AT_POINTS for name in POINTS),
)

_LEADS_TO: Final = {"lane.dead.after": -1, "lane.fail.after": 1}  # refusals that bring a worker there


class Emit(Struct, frozen=True, tag=True):
    """An event for a lane; `refusals` is how often its receiver says no, -1 for ever (a dead letter)."""

    at: float
    key: str
    refusals: int = 0


class Publish(Struct, frozen=True, tag=True):
    """An event for the feed."""

    at: float
    key: str


class Click(Struct, frozen=True, tag=True):
    """An operator's decision about an entry, as they saw it at the beginning."""

    at: float
    entry: int
    approves: bool
    operator: str


Item = Emit | Publish | Click


class TrafficSchedule(Struct, frozen=True):
    """One run: everything that is not drawn from the seed."""

    seed: int
    work: tuple[Item, ...]
    faults: tuple[Fault, ...] = ()

    def encode(self) -> str:
        """The schedule as one line."""
        return msgspec.json.encode(self).decode()

    @property
    def items(self) -> tuple[Item | Fault, ...]:
        """Everything that a minimiser may leave out."""
        return (*self.work, *self.faults)

    def keeping(self, items: tuple[Item | Fault, ...]) -> TrafficSchedule:
        """The same schedule with only these."""
        return replace(
            self,
            work=tuple(item for item in items if not isinstance(item, Fault)),
            faults=tuple(item for item in items if isinstance(item, Fault)),
        )


def make_traffic(seed: int) -> TrafficSchedule:
    """The schedule of a seed."""
    rng = Random(f"traffic {seed}")
    work: list[Item] = []
    for _ in range(rng.randrange(2, 6)):
        refusals = rng.choice((0, 0, 0, 0, 1, 2, -1))
        work.append(Emit(_moment(rng), rng.choice(KEYS), refusals))
    work += [Publish(_moment(rng), rng.choice(KEYS)) for _ in range(rng.randrange(1, 5))]
    for _ in range(rng.randrange(1, 4)):
        entry, approves = rng.randrange(ENTRIES), rng.random() < 0.5
        work.append(Click(_moment(rng), entry, approves, rng.choice(("ann", "bob"))))
        if rng.random() < 0.4:  # a double click
            work.append(replace(work[-1], at=work[-1].at + rng.choice((0.0, 0.01, 5.0))))
    kind, name = _IN_TURN[seed // TRAFFIC_EVERY % len(_IN_TURN)]
    if name in _LEADS_TO:
        work.append(Emit(_moment(rng), rng.choice(KEYS), _LEADS_TO[name]))
    faults = [_fault(rng, kind, name, nth=1)]
    faults += [_fault(rng, rng.choice(KINDS), rng.choice(POINTS)) for _ in range(rng.randrange(4))]
    return TrafficSchedule(seed, tuple(sorted(work, key=lambda item: item.at)), tuple(faults))


def _moment(rng: Random) -> float:
    """Often in bursts."""
    return round(rng.random() * rng.choice((0.05, 2.0, BUSY_SECONDS)), 3)


def _fault(rng: Random, kind: FaultKind, name: str, nth: int = 0) -> Fault:
    worker, seconds = rng.randrange(WORKERS), seconds_of(rng, kind)
    if kind in _AT_POINTS:
        return Fault(kind, nth=nth or rng.randrange(1, 5), name=name, seconds=seconds)
    if kind in (
        FaultKind.CRASH_AT_TIME,
        FaultKind.STALL_AT_TIME,
        FaultKind.STORE_DOWN,
        FaultKind.CLOCK_STEP,
    ):
        at = round(0.001 + rng.random() ** 2 * BUSY_SECONDS, 3)
        return Fault(kind, at=at, worker=worker, seconds=seconds)
    return Fault(kind, nth=nth or 1 + int(rng.random() ** 2 * 20), seconds=seconds)


def describe(schedule: TrafficSchedule) -> list[str]:
    """The schedule for people, a line each."""
    return [_told(item) for item in schedule.work] + [describe_fault(fault) for fault in schedule.faults]


def _told(item: Item) -> str:
    if isinstance(item, Click):
        verb = "approves" if item.approves else "rejects"
        return f"at {item.at:g} s {item.operator} {verb} entry {item.entry + 1}"
    if isinstance(item, Publish):
        return f"at {item.at:g} s an event of {item.key} is published"
    ending = {0: "", -1: ", which is refused for ever"}.get(
        item.refusals, f", refused {item.refusals} times"
    )
    return f"at {item.at:g} s an event goes into lane {item.key}{ending}"
