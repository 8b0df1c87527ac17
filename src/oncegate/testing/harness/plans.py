"""What happens in one trial of a user's handler: arrivals and mishaps, made from a seed."""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import Final

from msgspec import Struct

from oncegate.crashpoints import CRASH_POINTS

POINTS: Final = tuple(CRASH_POINTS)
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth")
LATE_SECONDS: Final = (40.0, 400.0, 7_200.0, 90_000.0)


def ordinal(number: int) -> str:
    """A small number as a word."""
    return _ORDINALS[number - 1]


class Trouble(Enum):
    """What can go wrong around a handler."""

    CRASH = "the worker crashes"
    STALL = "the worker stalls for 95 s"
    CALL_REPLY_LOST = "the downstream acts and its reply is lost"
    CALL_REQUEST_LOST = "the request to the downstream is lost"
    COMMIT_DONE = "a commit is done and its reply is lost"
    COMMIT_UNDONE = "a commit is undone and its reply is lost"
    STORE_DOWN = "the ledger is down for 25 s"
    CLOCK_STEP = "the wall clock steps by 2 h"


class PlannedArrival(Struct, frozen=True):
    """The event arrives at a worker; `variant` is 0, or the number of a near-duplicate."""

    at: float
    worker: int
    variant: int = 0

    def __str__(self) -> str:
        what = f"with change {self.variant}" if self.variant else "as it is"
        return f"at {self.at:g} s the event arrives at worker {self.worker}, {what}"


class Mishap(Struct, frozen=True):
    """One thing that goes wrong: at the `nth` time of something, or at a moment."""

    trouble: Trouble
    nth: int = 1
    point: str = ""
    at: float = 0.0

    def __str__(self) -> str:
        if self.at:
            return f"{self.trouble.value}, from {self.at:g} s on"
        when = f"the {ordinal(self.nth)} time"
        where = f" that {CRASH_POINTS[self.point]} ({self.point})" if self.point else ""
        return f"{self.trouble.value}, {when}{where}"


Plan = tuple[PlannedArrival | Mishap, ...]


def crash_plans() -> list[Plan]:
    """A crash at every step, the first and the second time it is reached, with the event coming again."""
    arrivals = (PlannedArrival(1.0, 0), PlannedArrival(1.5, 1), PlannedArrival(70.0, 1))
    return [(*arrivals, Mishap(Trouble.CRASH, nth=nth, point=point)) for point in POINTS for nth in (1, 2)]


def random_plan(seed: int, variants: int) -> Plan:
    """Arrivals and mishaps as they may come."""
    rng = Random(seed)
    first = PlannedArrival(1.0, _below(rng, 2))
    again = [_again(rng, variants) for _ in range(_below(rng, 4))]
    return (first, *again, *(_mishap(rng) for _ in range(1 + _below(rng, 3))))


def _below(rng: Random, limit: int) -> int:
    return int(rng.random() * limit)


def _again(rng: Random, variants: int) -> PlannedArrival:
    width = (0.0, 0.05, 2.0, 60.0)[_below(rng, 4)]
    at = 1.0 + rng.random() * width if rng.random() < 0.8 else LATE_SECONDS[_below(rng, 4)]
    variant = 1 + _below(rng, variants) if variants and rng.random() < 0.25 else 0
    return PlannedArrival(round(at, 3), _below(rng, 2), variant)


def _mishap(rng: Random) -> Mishap:
    trouble = tuple(Trouble)[_below(rng, len(Trouble))]
    if trouble in (Trouble.CRASH, Trouble.STALL):
        return Mishap(trouble, nth=1 + _below(rng, 3), point=POINTS[_below(rng, len(POINTS))])
    if trouble in (Trouble.STORE_DOWN, Trouble.CLOCK_STEP):
        return Mishap(trouble, at=round(0.5 + rng.random() * 60, 3))
    return Mishap(trouble, nth=1 + _below(rng, 6))
