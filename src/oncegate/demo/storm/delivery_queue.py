"""The simulated at-least-once queue, owned by the parent process.

A message leaves it only by an acknowledgement. One whose worker died or failed is delivered again after a
pause, unless the story says that the queue loses it. Must never decide about repeats: keeping them harmless
is the receiver's business.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from oncegate.clock import Clock
from oncegate.demo.storm.story import Message, StormFault

# Longer than the surface's lease of one second, as a visibility timeout should be.
REDELIVERY_DELAY_MS: Final = 1_100


@dataclass(frozen=True, slots=True, order=True)
class QueuedDelivery:
    """One hand-over of a message to a worker; `number` counts the deliveries of this message."""

    visible_at_ticks: int
    place: int
    number: int
    message: Message = field(compare=False)

    @property
    def fault(self) -> StormFault | None:
        """What befalls the worker that takes it."""
        return self.message.fault_at(self.number)


class DeliveryQueue:
    """Messages that wait, and messages that are out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[QueuedDelivery] = []
        self._out: set[int] = set()
        self._places = 0
        self.delivered = 0
        self.lost = 0

    def put(self, messages: Iterable[Message]) -> None:
        """Add messages, to be delivered at once and in this order."""
        now = self._clock.ticks_ms()
        for message in messages:
            self._wait(now, 1, message)

    def receive(self) -> QueuedDelivery | None:
        """Hand out the next message that may be delivered now."""
        if self.wait_ms != 0:
            return None
        delivery = heapq.heappop(self._waiting)
        self._out.add(delivery.place)
        self.delivered += 1
        return delivery

    def acknowledge(self, delivery: QueuedDelivery) -> None:
        """Forget a message that is done."""
        self._out.remove(delivery.place)

    def give_back(self, delivery: QueuedDelivery) -> None:
        """Deliver an unfinished message again after the pause, or lose it where the story says so."""
        self._out.remove(delivery.place)
        if delivery.message.lost and delivery.number >= len(delivery.message.faults):
            self.lost += 1
            return
        visible_at = self._clock.ticks_ms() + REDELIVERY_DELAY_MS
        self._wait(visible_at, delivery.number + 1, delivery.message)

    @property
    def wait_ms(self) -> int | None:
        """How long until a message may be delivered; None if none is waiting."""
        if not self._waiting:
            return None
        return max(0, self._waiting[0].visible_at_ticks - self._clock.ticks_ms())

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is out."""
        return not self._waiting and not self._out

    def _wait(self, visible_at_ticks: int, number: int, message: Message) -> None:
        self._places += 1
        heapq.heappush(self._waiting, QueuedDelivery(visible_at_ticks, self._places, number, message))
