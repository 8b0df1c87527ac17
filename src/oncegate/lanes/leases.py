"""The leases of one engine: extended while deliveries take long, known to be lost when they could not be.

Ledger time is compared with the engine's own ticks by how far apart they were when heads were last leased,
counted from before the question, so that a lease is never believed longer than it is.
"""

from __future__ import annotations

from oncegate.store import Delivery, HeadHeld


class Leases:
    """What is held, and until when in the engine's own ticks."""

    def __init__(self, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self._apart_ms = 0
        self._until: dict[tuple[int, int, int], int] = {}

    def compare(self, ledger_ticks: int, asked_at_ticks: int) -> None:
        """Notes how far ledger time and ours are apart."""
        self._apart_ms = ledger_ticks - asked_at_ticks

    def hold(self, delivery: Delivery) -> None:
        """Begins to look after a lease."""
        self._until[(delivery.lane_id, delivery.fence, delivery.holder)] = (
            delivery.lease_until_ticks - self._apart_ms
        )

    def drop(self, delivery: Delivery) -> None:
        """Stops looking after it."""
        self._until.pop((delivery.lane_id, delivery.fence, delivery.holder), None)

    def holds(self, delivery: Delivery, now_ticks: int) -> bool:
        """Whether a lease is certainly still ours: not over by our own ticks, and not known to be lost."""
        return self._until.get((delivery.lane_id, delivery.fence, delivery.holder), now_ticks) > now_ticks

    def due(self, now_ticks: int) -> list[HeadHeld]:
        """Leases that have less than half of their time left."""
        soon = now_ticks + self.lease_ms // 2
        return [HeadHeld(*held, self.lease_ms) for held, until in self._until.items() if until < soon]

    def extended(self, held: HeadHeld, asked_at_ticks: int) -> None:
        """Notes that a lease was extended."""
        if (held.lane_id, held.fence, held.holder) in self._until:
            self._until[(held.lane_id, held.fence, held.holder)] = asked_at_ticks + self.lease_ms

    def lost(self, held: HeadHeld) -> None:
        """Notes that another worker has the head now."""
        self._until.pop((held.lane_id, held.fence, held.holder), None)
