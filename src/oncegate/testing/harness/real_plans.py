"""What happens in a trial on a real database: arrivals and mishaps, one thing after the other.

There is no virtual loop: what two workers do at once is played at a place in the middle of one, where the
other does all of its work. So every interleaving at a crash point is tried, the same one in every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final, TypeGuard

from msgspec import Struct

from oncegate.crashpoints import CRASH_POINTS
from oncegate.testing.harness.plans import POINTS, Mishap, PlannedArrival, Trouble, ordinal, random_plan

COMMITS_TRIED: Final = 3  # which of the first commits goes wrong
_OF_COMMITS: Final = (Trouble.COMMIT_DONE, Trouble.COMMIT_UNDONE)
_OF_CALLS: Final = (Trouble.CALL_REPLY_LOST, Trouble.CALL_REQUEST_LOST)


class Meanwhile(Struct, frozen=True):
    """The event arrives at the other worker while the first one stands at a crash point."""

    point: str
    nth: int = 1

    def __str__(self) -> str:
        where = f"the {ordinal(self.nth)} time that {CRASH_POINTS[self.point]} ({self.point})"
        return f"the event arrives at the other worker, {where}"


RealPlan = tuple[PlannedArrival | Mishap | Meanwhile, ...]


def systematic_plans() -> list[RealPlan]:
    """A crash, a stall and a second arrival at every step; every first commit and call gone wrong."""
    arrivals = (PlannedArrival(1.0, 0), PlannedArrival(70.0, 1))
    mishaps: list[Mishap | Meanwhile] = [
        Mishap(Trouble.CRASH, nth=nth, point=point) for nth in (1, 2) for point in POINTS
    ]
    mishaps += [Mishap(Trouble.STALL, nth=nth, point=point) for nth in (1, 2) for point in POINTS]
    mishaps += [Meanwhile(point) for point in POINTS]
    mishaps += [Mishap(kind, nth=nth) for kind in _OF_COMMITS for nth in range(1, COMMITS_TRIED + 1)]
    mishaps += [Mishap(kind, nth=nth) for kind in _OF_CALLS for nth in (1, 2)]
    return [(*arrivals, mishap) for mishap in mishaps]


def may_strike(plan: RealPlan, reached: Mapping[str, int]) -> bool:
    """Whether a plan's crash points were reached so often in any trial before; a handler has not all."""
    return all(reached.get(item.point, 0) >= item.nth for item in plan if _has_point(item))


def _has_point(item: PlannedArrival | Mishap | Meanwhile) -> TypeGuard[Mishap | Meanwhile]:
    return not isinstance(item, PlannedArrival) and bool(item.point)


def random_real_plan(seed: int, variants: int) -> RealPlan:
    """Arrivals and mishaps as they may come; now and then two workers at once."""
    rng = Random(seed)
    plan: RealPlan = random_plan(seed, variants)
    if rng.random() < 0.5:
        plan = (*plan, Meanwhile(POINTS[int(rng.random() * len(POINTS))], 1 + int(rng.random() * 2)))
    return plan
