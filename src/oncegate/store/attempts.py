"""Attempts: the last failed requests of each delivery, with what came back and how long it took.

Observations, not decisions: nothing that orders deliveries reads them. An attempt that succeeds has no row
of its own, because its acknowledgement says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

ATTEMPTS_KEPT: Final = 10  # of one delivery; an older one makes room


class Attempt(Struct, frozen=True, gc=False):
    """One attempt that failed. `status` is the HTTP status; None where no response came."""

    lane_id: int
    seq: int
    fence: int
    at_ms: int
    took_ms: int
    status: int | None
    error: str


class Attempts(Protocol):
    """The last attempts of deliveries."""

    def note_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Keeps failed attempts, the last ATTEMPTS_KEPT of each delivery. Noted twice, one is kept."""

    def attempts(self, lane_id: int, seq: int) -> list[Attempt]:
        """Returns the attempts of one delivery that are kept, the first of them first."""
