"""What this process settled last, whole enough to be written down again where a ledger has lost it.

Bounded in number and size; the oldest go first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from oncegate.gate.surface import Surface
from oncegate.model.states import State
from oncegate.model.surface import Arrival
from oncegate.store import Reserved, StepRecord

RECENT_MAX: Final = 20_000
BODY_BYTES_MAX: Final = 16 * 2**20


class Settled(Struct, frozen=True, gc=False):
    """One event that this process settled, or tries to."""

    surface: Surface
    arrival: Arrival
    reserved: Reserved
    state: State
    at_ms: int
    resource: str | None
    steps: tuple[StepRecord, ...]


class Recent:
    """The newest settlements of one gate."""

    def __init__(self) -> None:
        self._kept: deque[Settled] = deque()
        self._bytes = 0

    def note(self, settled: Settled) -> None:
        """Keeps one more."""
        self._kept.append(settled)
        self._bytes = held = self._bytes + len(settled.arrival.body)
        if held > BODY_BYTES_MAX or len(self._kept) > RECENT_MAX:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        kept = self._kept
        while len(kept) > RECENT_MAX or (self._bytes > BODY_BYTES_MAX and kept):
            self._bytes -= len(kept.popleft().arrival.body)

    def all(self) -> list[Settled]:
        """All that are kept, the oldest first."""
        return list(self._kept)

    def drop(self, owns: Callable[[bytes], bool]) -> None:
        """Keeps nothing more of these keys."""
        self._kept = deque(one for one in self._kept if not owns(one.reserved.key))
        self._bytes = sum(len(one.arrival.body) for one in self._kept)
