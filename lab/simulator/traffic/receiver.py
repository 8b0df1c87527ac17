"""The receivers of deliveries, and the network to them: requests and replies get lost and come late."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from lab.simulator.schedule import FaultKind
from lab.simulator.traffic.evidence import Arrived, Sent
from oncegate.lanes import Dead, Delivered, RetryLater
from oncegate.store import Delivery, LaneState

if TYPE_CHECKING:
    from lab.simulator.traffic.world import TrafficWorld

TIMEOUT_SECONDS: Final = 10.0
_LANE: Final = "SELECT seq, fence, state FROM oncegate_lane WHERE id = ?"


class Receiver:
    """Where all lanes lead: takes events, or refuses them as the schedule says."""

    def __init__(self, world: TrafficWorld, refusals: dict[str, int]) -> None:
        self._world = world
        self._left = Counter({event: times for event, times in refusals.items() if times > 0})
        self._never = {event for event, times in refusals.items() if times < 0}

    async def deliver(self, delivery: Delivery) -> Any:
        """Sends a request and waits for its answer, for a while."""
        world = self._world
        ((_, fence, state),) = world.evidence.rows(_LANE, delivery.lane_id)
        is_leased = state == LaneState.LEASED
        world.evidence.sent.append(
            Sent(world.loop.time(), delivery.key, delivery.seq, delivery.fence, fence, is_leased)
        )
        return await self._exchange(delivery)

    def _exchange(self, delivery: Delivery) -> asyncio.Future[Any]:
        world, fault = self._world, self._world.faults.call()
        kind = None if fault is None else fault.kind
        reply: asyncio.Future[Any] = world.loop.create_future()
        world.loop.call_later(TIMEOUT_SECONDS, _answer, reply, RetryLater("no answer"))
        if kind is not FaultKind.CALL_REQUEST_LOST:
            late = 0.0 if fault is None or kind is not FaultKind.CALL_SLOW else fault.seconds
            world.later(world.travel() + late, self._arrive, delivery, reply, kind)
        return reply

    def _arrive(self, delivery: Delivery, reply: asyncio.Future[Any], kind: FaultKind | None) -> None:
        world = self._world
        ((head, _, _),) = world.evidence.rows(_LANE, delivery.lane_id)
        world.note("arrives", delivery.key, delivery.seq, delivery.attempt)
        if kind is FaultKind.CALL_REFUSED:
            answer: Any = RetryLater("503")
        else:
            arrived = Arrived(world.loop.time(), delivery.key, delivery.seq, delivery.event_id, head)
            world.evidence.arrived.append(arrived)
            answer = self._taken(delivery.event_id)
        if kind is not FaultKind.CALL_REPLY_LOST:
            world.later(world.travel(), _answer, reply, answer)

    def _taken(self, event_id: str) -> Any:
        if event_id in self._never:
            return Dead("400")
        if self._left[event_id] > 0:
            self._left[event_id] -= 1
            return RetryLater("500")
        return Delivered("200")


def _answer(reply: asyncio.Future[Any], answer: Any) -> None:
    if not reply.done():
        reply.set_result(answer)
