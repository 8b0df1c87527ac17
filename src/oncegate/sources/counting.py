"""What one consumer has counted since its start, and its last error."""

from __future__ import annotations

from collections.abc import Callable

from oncegate.sources.contract import Traits
from oncegate.sources.status import ERROR_LENGTH_MAX, RUNNING, SourceStatus


class ConsumerCounts:
    """Counters of one consumer; only its event loop changes them."""

    def __init__(self, surface: str, wall_ms: Callable[[], int]) -> None:
        self.surface = surface
        self.state = RUNNING
        self.received = self.acknowledged = self.given_back = self.redelivered = 0
        self.poison = self.let_go = self.acks_lost = self.not_kept = 0
        self.last_error: str | None = None
        self.last_error_at_ms: int | None = None
        self._wall_ms, self._started_at_ms = wall_ms, wall_ms()

    def failed(self, why: str) -> None:
        """Notes the latest error, for people."""
        self.last_error, self.last_error_at_ms = why[:ERROR_LENGTH_MAX], self._wall_ms()

    def status(self, traits: Traits | None, in_flight: int, oldest_ms: int) -> SourceStatus:
        """The whole as the ledger keeps it."""
        return SourceStatus(
            surface=self.surface,
            kind="" if traits is None else traits.kind,
            server="" if traits is None else traits.server,
            queue="" if traits is None else traits.queue,
            state=self.state,
            in_flight=in_flight,
            oldest_ms=oldest_ms,
            received=self.received,
            acknowledged=self.acknowledged,
            given_back=self.given_back,
            redelivered=self.redelivered,
            poison=self.poison,
            let_go=self.let_go,
            acks_lost=self.acks_lost,
            not_kept=self.not_kept,
            last_error=self.last_error,
            last_error_at_ms=self.last_error_at_ms,
            started_at_ms=self._started_at_ms,
            warnings=() if traits is None else traits.warnings,
        )
