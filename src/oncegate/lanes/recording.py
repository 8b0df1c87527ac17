"""Recording what came of an attempt: the acknowledgement, the next try, or the dead letter.

What could not be recorded is tried again for a while, long enough for a store that is being restarted;
after that the lease lapses and the head goes again, which its destination sees as a duplicate with the same
id. A record that may or may not be there is looked for before it is written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeVar

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.lane_operations import Fail, Finish, GiveUp, NoteAttempt, Resumed, Steer
from oncegate.commit.lane_operations import ThrottleDestination as ThrottleOperation
from oncegate.commit.operations import Operation
from oncegate.crashpoints import CrashPoints
from oncegate.errors import StoreError, StoreUnavailable, StoreUnknown
from oncegate.lanes.delivery_stats import DeliveryCounts
from oncegate.lanes.destinations import Destination, Traffic
from oncegate.lanes.outcomes import (
    Dead,
    Delivered,
    Disable,
    NotYet,
    RetryLater,
    Throttle,
    Tried,
    Unreached,
    clamp_ms,
    short,
)
from oncegate.store import (
    Acknowledgement,
    Advanced,
    Attempt,
    Delivery,
    DestinationState,
    Failure,
    GivenUp,
    Steering,
    Throttling,
)

RECORD_WAITS_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2)  # together below any lease

T = TypeVar("T")


class AttemptRecorder:
    """Turns outcomes into writes; counts them."""

    def __init__(
        self,
        commits: GroupCommit,
        clock: Clock,
        crashpoints: CrashPoints,
        jitter: Callable[[], float],
        actor: str,
    ) -> None:
        self._commits = commits
        self._clock = clock
        self._points = crashpoints
        self._jitter = jitter
        self._actor = actor
        self._delivered = 0
        self._failed = 0
        self.stats = DeliveryCounts(commits, clock)

    def counts(self) -> tuple[int, int]:
        """How many deliveries and how many failures were recorded."""
        return self._delivered, self._failed

    def record(
        self, traffic: Traffic, delivery: Delivery, tried: Tried, lease_ms: int, next_holder: int
    ) -> Awaitable[Delivery | None]:
        """Records an outcome; the answer is the next event of the lane if it was leased with it."""
        outcome = tried.outcome
        if isinstance(outcome, Delivered):
            self.stats.succeeded(delivery.destination, tried.took_ms)
            return self._finish(traffic, delivery, outcome, lease_ms, next_holder)
        return self._failed_attempt(traffic, delivery, tried, lease_ms, next_holder)

    async def _failed_attempt(
        self, traffic: Traffic, delivery: Delivery, tried: Tried, lease_ms: int, next_holder: int
    ) -> Delivery | None:
        """Keeps the attempt for people, as far as the ledger can be reached, then records what follows."""
        outcome = tried.outcome
        assert not isinstance(outcome, Delivered)
        attempt = self._attempt_of(delivery, tried)
        if not isinstance(outcome, NotYet):
            self.stats.failed(delivery.destination)
        if not isinstance(outcome, NotYet) or attempt.status is not None:
            with suppress(StoreError):
                await self._commits.submit_async(NoteAttempt(attempt))
        return await self._failure(traffic, delivery, outcome, lease_ms, next_holder)

    def _attempt_of(self, delivery: Delivery, tried: Tried) -> Attempt:
        outcome, at_ms = tried.outcome, self._clock.wall_ms()
        error = short(outcome.reason if isinstance(outcome, NotYet) else getattr(outcome, "error", ""))
        status = getattr(outcome, "status", None)
        lane, seq, fence = delivery.lane_id, delivery.seq, delivery.fence
        return Attempt(lane, seq, fence, at_ms - tried.took_ms, tried.took_ms, status, error)

    async def _failure(
        self,
        traffic: Traffic,
        delivery: Delivery,
        outcome: RetryLater | Unreached | Dead | Throttle | Disable | NotYet,
        lease_ms: int,
        next_holder: int,
    ) -> Delivery | None:
        if isinstance(outcome, NotYet):
            wait_ms = clamp_ms(outcome.after_seconds)
            return await self._wait(delivery, wait_ms, outcome.reason, counts=False)
        self._failed += 1
        if isinstance(outcome, (RetryLater, Unreached, Dead)) and traffic.destination.circuit:
            reached, error = not isinstance(outcome, Unreached), short(outcome.error)
            traffic.circuit.fail(delivery.lane_id, self._clock.ticks_ms(), error, reached=reached)
        if isinstance(outcome, Throttle):
            wait_ms = clamp_ms(outcome.after_seconds)
            await self._perform(ThrottleOperation(Throttling(delivery.destination, wait_ms)))
            return await self._wait(delivery, wait_ms, outcome.error, counts=False)
        if isinstance(outcome, Disable):
            await self._disable(delivery, outcome)
            return await self._wait(delivery, 0, outcome.error, counts=False)
        destination = traffic.destination
        if isinstance(outcome, Unreached):
            delay = destination.backoff.delay(delivery.attempt, self._jitter())
            return await self._wait(delivery, _ms(delay), outcome.error, counts=False)
        if isinstance(outcome, Dead) or destination.backoff.exhausted(delivery.attempt):
            return await self._give_up(destination, delivery, outcome.error, lease_ms, next_holder)
        delay = destination.backoff.delay(delivery.attempt, self._jitter())
        wait_ms = max(_ms(delay), clamp_ms(outcome.after_seconds))
        return await self._wait(delivery, wait_ms, outcome.error)

    async def _finish(
        self, traffic: Traffic, delivery: Delivery, outcome: Delivered, lease_ms: int, next_holder: int
    ) -> Delivery | None:
        traffic.circuit.succeed()
        ack = Acknowledgement(
            delivery.lane_id, delivery.seq, delivery.fence, delivery.holder, delivery.event_id,
            self._clock.wall_ms(), short(outcome.note), lease_ms, next_holder,
        )  # fmt: skip
        advanced: Advanced = await self._perform(Finish(ack))
        self._points.hit("lane.finish.after")
        self._delivered += advanced.done
        return advanced.successor

    async def _wait(
        self, delivery: Delivery, wait_ms: int, error: str, *, counts: bool = True
    ) -> Delivery | None:
        failure = Failure(delivery.lane_id, delivery.fence, delivery.holder, wait_ms, short(error), counts)
        await self._perform(Fail(failure))
        self._points.hit("lane.fail.after")
        return None

    async def _give_up(
        self, destination: Destination, delivery: Delivery, error: str, lease_ms: int, next_holder: int
    ) -> Delivery | None:
        given_up = GivenUp(
            delivery.lane_id, delivery.seq, delivery.fence, delivery.holder, delivery.event_id,
            self._clock.wall_ms(), short(error), destination.policy, self._actor, lease_ms, next_holder,
        )  # fmt: skip
        advanced: Advanced = await self._perform(GiveUp(given_up))
        self._points.hit("lane.dead.after")
        return advanced.successor

    async def _disable(self, delivery: Delivery, outcome: Disable) -> None:
        at_ms, reason = self._clock.wall_ms(), short(outcome.error)
        state = DestinationState.DISABLED
        await self._perform(Steer(Steering(delivery.destination, state, self._actor, reason, at_ms)))

    async def _perform(self, operation: Operation[T]) -> T:
        asked: Operation[T] = operation
        for wait in RECORD_WAITS_SECONDS:
            try:
                return await self._commits.submit_async(asked)
            except StoreUnknown:
                asked = Resumed(operation)
            except StoreUnavailable:
                pass
            await asyncio.sleep(wait)
        return await self._commits.submit_async(asked)


def _ms(delay: timedelta) -> int:
    return int(delay.total_seconds() * 1000)
