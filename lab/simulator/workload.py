"""Makes schedules from seeds: duplicates, reorderings, near-duplicates, bursts, late replays, faults."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, TypeVar

from lab.simulator.schedule import WORKERS, Delivery, Event, Fate, Fault, FaultKind, Schedule
from oncegate.crashpoints import CRASH_POINTS

T = TypeVar("T")

SURFACES: Final = ("book", "print", "mail", "trip", "record", "pay")
BATCHED: Final = ("invoice",)  # events that come at once, and whose writes depend on each other
DEPLOYED: Final = ("swap", "quote")  # events that a worker of another version may have to finish
LOSING: Final = ("mail", "trip", "print", "book", "record", "pay")  # the ledger fails over meanwhile
BATCHED_EVERY: Final = 8  # so many seeds, one is of those, one of the deployed, one of the losing
_DEPLOYED_AT: Final = 4
_LOSING_AT: Final = 2
COMMITS_LOST_MAX: Final = 8
# The second pair reads the same as the first when nothing stands between the fields; so do tenant and
# field below.
IDENTS: Final = (("ab", "c"), ("a", "bc"), ("ab", "d"))
TENANTS: Final = ("x", "xa")
FATES: Final = (Fate.SUCCEEDS,) * 6 + (Fate.FAILS_FOR_GOOD, Fate.FAILS_FIRST)
LATE_SECONDS: Final = (360.0, 5_400.0, 90_000.0, 1_800_000.0, 3_000_000.0)
BUSY_SECONDS: Final = 90.0
POINTS: Final = tuple(CRASH_POINTS)
ANY_TIME: Final = tuple(kind for kind in FaultKind if kind is not FaultKind.FAILOVER)
KINDS: Final = (*ANY_TIME, *(FaultKind.CRASH_AT_POINT,) * 3, *(FaultKind.STALL_AT_POINT,) * 2)


def make_schedule(seed: int, surfaces: Sequence[str] = SURFACES) -> Schedule:
    """The schedule of a seed."""
    rng = Random(seed)
    if surfaces == BATCHED or (surfaces is SURFACES and seed % BATCHED_EVERY == 0):
        return _batched(rng, seed)
    if surfaces is SURFACES and seed % BATCHED_EVERY == _DEPLOYED_AT:
        surfaces = DEPLOYED
    if surfaces is LOSING or (surfaces is SURFACES and seed % BATCHED_EVERY == _LOSING_AT):
        return _losing(rng, seed)
    events = _events(rng, surfaces)
    deliveries = tuple(sorted(_deliveries(rng, len(events)), key=lambda item: item.at))
    faults = tuple(_fault(rng) for _ in range(rng.randrange(1, 5)))
    return Schedule(seed, events, deliveries, faults)


def _batched(rng: Random, seed: int) -> Schedule:
    """Some events that one worker gets in one moment, some of them again; half of it without faults."""
    events = tuple(
        Event("invoice", "x", ("i", str(number)), fate=_one(rng, FATES))
        for number in range(2 + int(rng.random() * 4))
    )
    at, worker = round(rng.random() * 5, 3), _worker(rng)
    # The queue gives each message to the next worker in turn; these are to meet.
    deliveries = [Delivery(at, number, (worker - number) % WORKERS) for number in range(len(events))]
    deliveries += [
        Delivery(max(at, _again(rng, at)), number, _worker(rng))
        for number in range(len(events))
        if rng.random() < 0.3
    ]
    faults = tuple(_fault(rng) for _ in range(rng.randrange(1, 5))) if rng.random() < 0.5 else ()
    return Schedule(seed, events, tuple(sorted(deliveries, key=lambda item: item.at)), faults)


def _losing(rng: Random, seed: int) -> Schedule:
    """Two or three events while the ledger goes back: numbers of one are given to another."""
    places = ((ident, tenant) for ident in IDENTS for tenant in TENANTS)
    events = tuple(
        Event(_one(rng, LOSING), tenant, ident, fate=_one(rng, FATES))
        for _, (ident, tenant) in zip(range(2 + int(rng.random() * 2)), places, strict=False)
    )
    failover_at = round(0.01 + rng.random() ** 2 * 10, 3)
    deliveries = []
    for number in range(len(events)):
        first = round(max(0.0, failover_at + (rng.random() - 0.7) * 2), 3)
        deliveries.append(Delivery(first, number, _worker(rng)))
        if rng.random() < 0.5:
            deliveries.append(Delivery(_again(rng, first), number, _worker(rng)))
    lost = 1 + int(rng.random() * COMMITS_LOST_MAX)
    faults = (
        Fault(FaultKind.FAILOVER, at=failover_at, nth=lost),
        *(_fault(rng) for _ in range(int(rng.random() * 3))),
    )
    return Schedule(seed, events, tuple(sorted(deliveries, key=lambda item: item.at)), faults)


def _events(rng: Random, surfaces: Sequence[str]) -> tuple[Event, ...]:
    surface = _one(rng, surfaces)
    events = [Event(surface, _one(rng, TENANTS), _one(rng, IDENTS), fate=_one(rng, FATES))]
    if rng.random() < 0.5:
        other = Event(_one(rng, surfaces), _one(rng, TENANTS), _one(rng, IDENTS), fate=_one(rng, FATES))
        if (other.surface, other.tenant, other.ident) != (surface, events[0].tenant, events[0].ident):
            events.append(other)
    return tuple(events)


def _one(rng: Random, choices: Sequence[T]) -> T:
    return choices[int(rng.random() * len(choices))]


def _deliveries(rng: Random, events: int) -> list[Delivery]:
    made: list[Delivery] = []
    for event in range(events):
        first = round(rng.random() * 5, 3)
        made.append(Delivery(first, event, _worker(rng)))
        made += [
            Delivery(_again(rng, first), event, _worker(rng), rng.random() < 0.15)
            for _ in range(int(rng.random() * 3))
        ]
        if rng.random() < 0.3:
            made.append(Delivery(first + _one(rng, LATE_SECONDS), event, _worker(rng), rng.random() < 0.2))
    return made


def _again(rng: Random, first: float) -> float:
    """In the same moment, in a burst, or while recovery is under way; sometimes before the first."""
    width = _one(rng, (0.0, 0.02, 1.0, BUSY_SECONDS))
    return round(max(0.0, first + (rng.random() - 0.1) * width), 3)


def _worker(rng: Random) -> int:
    return int(rng.random() * WORKERS)


def _fault(rng: Random) -> Fault:
    kind = _one(rng, KINDS)
    worker, at = _worker(rng), round(0.001 + rng.random() ** 2 * BUSY_SECONDS, 3)
    if kind in (FaultKind.CRASH_AT_POINT, FaultKind.STALL_AT_POINT):
        nth = 1 + int(rng.random() * 3)
        return Fault(kind, nth=nth, name=_one(rng, POINTS), seconds=seconds_of(rng, kind))
    if kind in (
        FaultKind.CRASH_AT_TIME,
        FaultKind.STALL_AT_TIME,
        FaultKind.STORE_DOWN,
        FaultKind.CLOCK_STEP,
    ):
        return Fault(kind, at=at, worker=worker, seconds=seconds_of(rng, kind))
    return Fault(kind, nth=1 + int(rng.random() ** 2 * 12), seconds=seconds_of(rng, kind))


_SECONDS: Final[dict[FaultKind, tuple[float, ...]]] = {
    FaultKind.CRASH_AT_POINT: (0.5, 5.0, 100.0, 7_200.0),
    FaultKind.CRASH_AT_TIME: (0.5, 5.0, 100.0, 7_200.0),
    FaultKind.STALL_AT_POINT: (1.0, 19.0, 25.0, 95.0, 400.0),
    FaultKind.STALL_AT_TIME: (1.0, 19.0, 25.0, 95.0, 400.0),
    FaultKind.STORE_SLOW: (0.2, 5.0, 25.0, 50.0),
    FaultKind.STORE_DOWN: (1.0, 25.0, 100.0),
    FaultKind.CALL_SLOW: (0.5, 8.0, 22.0),
    FaultKind.CLOCK_STEP: (-7_200.0, -60.0, 60.0, 7_200.0, 31_536_000.0, -31_536_000.0),
}


def seconds_of(rng: Random, kind: FaultKind) -> float:
    """How long a fault of a kind lasts, or how far it goes."""
    choices = _SECONDS.get(kind)
    return 0.0 if choices is None else _one(rng, choices)
