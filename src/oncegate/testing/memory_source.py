"""A queue in memory, with the manners of a real one: leases, redeliveries, dead letters, lost calls.

For tests of programs that consume queues, and for the tests of the consumer itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from oncegate.errors import SourceUnavailable
from oncegate.sources.contract import Delivery, InFlight, Traits

MEMORY: Traits = Traits(
    kind="memory",
    server="memory",
    queue="memory",
    lease_seconds=30.0,
    delay_max_seconds=900.0,
    counts_deliveries=True,
    has_dead_letters=True,
    poll_seconds=0.05,
)


class _Message(Struct, eq=False):
    number: int
    body: bytes
    message_id: str
    headers: Mapping[str, str]
    lane: str | None
    times: int = 0
    hidden_until: float = 0.0


class MemorySource:
    """A `Source` whose queue is in this process. `fails` names calls that find the broker away.

    What happened stands in `acked`, `given_back` (message id and delay), `buried` and `extended`. With
    `traits` it has other manners.
    """

    def __init__(self, name: str = "memory", **traits: Any) -> None:
        self.name = name
        self.traits = replace(MEMORY, **traits)
        self.fails: set[str] = set()
        self.acked: list[str] = []
        self.given_back: list[tuple[str, float]] = []
        self.buried: list[tuple[str, str]] = []
        self.extended: list[str] = []
        self.asked_for: list[int] = []
        self.opened = 0
        self.is_closed = False
        self._waiting: list[_Message] = []
        self._out: dict[Delivery, _Message] = {}
        self._arrived = asyncio.Event()
        self._count = 0

    def send(
        self, body: bytes, *, lane: str | None = None, headers: Mapping[str, str] | None = None
    ) -> str:
        """Puts a message into the queue and returns its id."""
        self._count += 1
        message = _Message(self._count, body, f"m{self._count}", headers or {}, lane)
        self._waiting.append(message)
        self._arrived.set()
        return message.message_id

    @property
    def left(self) -> int:
        """How many messages are not acknowledged and not buried."""
        return len({message.message_id for message in [*self._waiting, *self._out.values()]})

    def deliver_again(self) -> None:
        """Delivers again all that is not acknowledged, as after the end of a lease or a connection."""
        for message in dict.fromkeys(self._out.values()):
            if message not in self._waiting:
                self._waiting.append(message)
        self._arrived.set()

    def _check(self, call: str) -> None:
        if call in self.fails:
            raise SourceUnavailable(f"the broker is away ({call})")

    async def open(self, in_flight: InFlight) -> Traits:
        """Opens; the consumer may be asked to drain by `in_flight`."""
        self._check("open")
        self.opened += 1
        self.in_flight = in_flight
        return self.traits

    async def receive(self, count_max: int, wait_seconds: float) -> Sequence[Delivery]:
        """Delivers what is visible, in order; nothing of a lane whose earlier message is out."""
        self._check("receive")
        self.asked_for.append(count_max)
        found = self._deliver(count_max)
        if not found:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), wait_seconds)
            except TimeoutError:
                return []
            self._check("receive")
            found = self._deliver(count_max)
        return found

    def _deliver(self, count_max: int) -> list[Delivery]:
        now = asyncio.get_running_loop().time()
        found: list[Delivery] = []
        blocked = {one.lane for one in self._out} if self.traits.blocks_lanes else set()
        for message in sorted(self._waiting, key=lambda one: one.number):
            if len(found) == count_max:
                break
            if message.lane is not None and message.lane in blocked:
                continue
            if message.hidden_until <= now:
                found.append(self._hand_out(message))
            elif self.traits.blocks_lanes:
                blocked.add(message.lane)
        return found

    def _hand_out(self, message: _Message) -> Delivery:
        message.times += 1
        delivery = Delivery(
            message.body, message.message_id, message.headers, message.lane, message.times, handle=self
        )
        self._waiting.remove(message)
        self._out[delivery] = message
        return delivery

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Removes messages; by an old delivery too, as NATS does."""
        self._check("ack")
        for delivery in deliveries:
            message = self._out.pop(delivery, None)
            self.acked.append(delivery.message_id)
            if message is not None and message in self._waiting:
                self._waiting.remove(message)

    async def give_back(self, delivery: Delivery, delay_seconds: float) -> None:
        """Puts a message back, hidden for the delay."""
        self._check("give_back")
        self.given_back.append((delivery.message_id, delay_seconds))
        message = self._out.pop(delivery)
        message.hidden_until = asyncio.get_running_loop().time() + delay_seconds
        self._waiting.append(message)
        if delay_seconds <= 0:
            self._arrived.set()

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Notes the extension."""
        self._check("extend")
        self.extended += [delivery.message_id for delivery in deliveries]

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Takes a message out of the queue as a dead letter."""
        self._check("bury")
        self._out.pop(delivery)
        self.buried.append((delivery.message_id, reason))

    async def lag(self) -> int | None:
        """How many wait."""
        return len(self._waiting)

    async def close(self) -> None:
        """Ends."""
        self.is_closed = True
