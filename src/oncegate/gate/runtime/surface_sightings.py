"""What was seen of one surface since it was last gathered: lists that arrivals only append to."""

from __future__ import annotations

from typing import TypeVar

from oncegate.gate.runtime.duplicate_detector import Look
from oncegate.gate.runtime.stale_offsets import Repeated
from oncegate.gate.runtime.targets import Bringing
from oncegate.model.states import Decision
from oncegate.model.surface import SurfaceRule

# Decision, entry, first arrival, now, new ones before it, whether its sender was asked to come again.
RepeatedTuple = tuple[Decision, int, int, int, int, bool]
_New = tuple[int, str, bytes, int]  # entry, tenant, body, now
T = TypeVar("T")


class SurfaceSightings:
    """What was seen of one surface since it was last gathered.

    Lists that arrivals only append to: one step of the interpreter, so that no lock is needed. `fresh` has
    the microseconds that each new key's reservation took, -1 where that was not measured. `others` has what
    is only counted.
    """

    __slots__ = (
        "brought", "fresh", "fresh_left", "late_ms", "looks", "lost", "new",
        "observed", "others", "repeated", "repeats", "rule",
    )  # fmt: skip

    def __init__(self, rule: SurfaceRule) -> None:
        self.rule = rule
        self.late_ms = int(rule.late_replay_after.total_seconds() * 1000)
        self.fresh: list[int] = []
        self.new: list[_New] = []
        self.repeated: list[RepeatedTuple] = []
        self.others: list[int] = []
        self.observed: list[Repeated] = []  # repeats that ran all the same; counted by who observes
        self.brought: list[Bringing] = []
        self.lost = 0
        # Gathered and not yet compared with what others saw; touched under the lock of flushing only.
        self.looks: list[Look] = []
        self.repeats: list[Repeated] = []
        self.fresh_left = 0


def taken(waiting: list[T]) -> list[T]:
    """Takes what stands in a list that others may append to at this very moment; nothing gets lost."""
    taken = waiting[: len(waiting)]
    del waiting[: len(taken)]
    return taken
