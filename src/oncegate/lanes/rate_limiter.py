"""A rate for each destination: so many deliveries a second, saved up for at most one second. Pure."""

from __future__ import annotations

from oncegate.errors import ConfigError


class RateLimiter:
    """Counts what may still begin; ticks are passed in."""

    def __init__(self, per_second: float | None, now_ticks: int) -> None:
        if per_second is not None and not 0 < per_second < 1e9:
            raise ConfigError("a rate must be a positive number of deliveries a second")
        self._per_second = per_second
        self._saved = max(1.0, per_second or 0.0)
        self._at_ticks = now_ticks

    def room(self, free: int, now_ticks: int) -> int:
        """How many may begin now, of `free` at most."""
        if self._per_second is None:
            return free
        self._save(now_ticks)
        return min(free, int(self._saved))

    def take(self, count: int) -> None:
        """Uses up what began."""
        if self._per_second is not None:
            self._saved -= count

    def ready_in_ms(self, now_ticks: int) -> int | None:
        """How long until the next one may begin; None if one may now."""
        if self._per_second is None:
            return None
        self._save(now_ticks)
        return None if self._saved >= 1 else int((1 - self._saved) / self._per_second * 1000) + 1

    def _save(self, now_ticks: int) -> None:
        rate = self._per_second or 0.0
        self._saved = min(max(1.0, rate), self._saved + (now_ticks - self._at_ticks) / 1000 * rate)
        self._at_ticks = now_ticks
