"""Brings every held delivery to its end: acknowledged, given back, buried or let go. Never two of these.

Must never acknowledge what is not on record, and never acknowledge after a cancellation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from oncegate.clock import Clock
from oncegate.errors import SourceUnavailable
from oncegate.sources.acks import AckBatches
from oncegate.sources.attempts import GateAttempts
from oncegate.sources.contract import Source, Traits
from oncegate.sources.counting import ConsumerCounts
from oncegate.sources.decisions import (
    AGAIN_SECONDS,
    Decided,
    Later,
    LedgerAway,
    LetGo,
    OnRecord,
    Poisoned,
    StopNow,
)
from oncegate.sources.held import HeldDeliveries, HeldDelivery
from oncegate.sources.options import Consumption

LEDGER_SECONDS: Final = 5.0  # how soon a message may come again that met an absent ledger

log = logging.getLogger("oncegate.sources")


class Settling:
    """The deliveries of one consumer on their way to an end."""

    def __init__(
        self,
        source: Source,
        one: Consumption,
        attempts: GateAttempts,
        counts: ConsumerCounts,
        clock: Clock,
        *,
        stop: Callable[[BaseException], None],
        ledger_away: Callable[[str], None],
        released: Callable[[], None],
    ) -> None:
        self.held = HeldDeliveries()
        self.acks = AckBatches(source, self._acknowledged)
        self.traits: Traits | None = None
        self.stopping = asyncio.Event()
        self.has_failed = False
        self.is_once = False
        self._source, self._one, self._attempts, self._counts, self._clock = (
            source, one, attempts, counts, clock,
        )  # fmt: skip
        self._slots = asyncio.Semaphore(one.concurrency)
        self._stop, self._ledger_away, self._released = stop, ledger_away, released

    async def run_lane(self, first: HeldDelivery) -> None:
        """Brings a delivery to its end, and then those that wait behind it in its lane."""
        held: HeldDelivery | None = first
        while held is not None:
            if not await self._finish(held):
                await self.give_back_all(self.held.line(held), 0.0)
            held = self.held.following(held)

    async def _finish(self, held: HeldDelivery) -> bool:
        """Tries until there is an end; False where the rest of the lane must not run now."""
        while held in self.held:
            decided = await self._decide(held)
            if isinstance(decided, OnRecord):
                held.is_done = True
                self.acks.put(held)
                return True
            if held not in self.held:
                return False
            if isinstance(decided, LetGo) and self._of_broker.lease_seconds is not None:
                self._count_let_go(held, decided.why)
                if not (decided.is_claim_lost and held.lane is not None and self._retries_here(held)):
                    self._drop(held)
                    return False
                held.is_let_go = held.is_claim_lost = True  # nothing of the lane overtakes that worker
            later = self._later(decided)
            if not self._retries_here(held):
                await self.give_back_all([held, *self.held.line(held)], later.seconds)
                return False
            await self._wait(later.seconds)
            if self.stopping.is_set():
                await self.give_back_all([held], 0.0)
                return False
        return False

    @property
    def _of_broker(self) -> Traits:
        assert self.traits is not None, "nothing is received before the source is open"
        return self.traits

    async def _decide(self, held: HeldDelivery) -> Decided:
        """One attempt; poison is kept or buried with it, so that stopping does not give it back besides."""
        async with self._slots:
            try:
                decided = await self._attempt(held)
                return await self._put_away(held, decided) if isinstance(decided, Poisoned) else decided
            finally:
                held.started_ms = None

    async def _put_away(self, held: HeldDelivery, poison: Poisoned) -> Decided:
        if self._one.poison != "quarantine":
            return await self._bury(held, poison.reason)
        kept = await self._attempts.keep_poison(held, poison.reason, self._of_broker)
        self._counts.poison += isinstance(kept, OnRecord)
        self._counts.not_kept += isinstance(kept, Later)
        return kept

    async def _attempt(self, held: HeldDelivery) -> Decided:
        now, lease = self._clock.ticks_ms(), self._of_broker.lease_seconds
        if held.is_dropped:
            return LetGo("it was given back before it was started")
        if lease is not None and now - held.extended_ms > lease * 1000 and not held.is_claim_lost:
            return LetGo("its lease at the broker ended before it was started")
        held.started_ms, held.attempts = now, held.attempts + 1
        return await self._attempts.attempt(held)

    async def _bury(self, held: HeldDelivery, reason: str) -> Decided:
        """Leaves a message to the broker's dead-letter queue; it is in the ledger's quarantine never."""
        try:
            await self._source.bury(held.delivery, reason)
        except SourceUnavailable as error:
            return Later(AGAIN_SECONDS, f"{error}")
        self._counts.poison += 1
        self._drop(held)
        return LetGo(f"buried: {reason}")

    def _later(self, decided: Decided) -> Later:
        if isinstance(decided, Later):
            self._counts.failed(decided.why)
            return decided
        if isinstance(decided, StopNow):
            self.has_failed = True
            self._stop(decided.error)
            return Later(AGAIN_SECONDS, str(decided.error))
        if isinstance(decided, LedgerAway):
            self._counts.failed(decided.why)
            self._ledger_away(decided.why)
            return Later(LEDGER_SECONDS, decided.why)
        why = decided.why if isinstance(decided, LetGo) else ""
        return Later(AGAIN_SECONDS, why)

    def _retries_here(self, held: HeldDelivery) -> bool:
        """Whether the consumer waits and tries again itself: the broker cannot, or would lose the order."""
        if self.is_once or self.has_failed or self.stopping.is_set():
            return False
        traits = self._of_broker
        return not traits.gives_back or (held.lane is not None and not traits.blocks_lanes)

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return

    async def give_back_all(self, several: Sequence[HeldDelivery], seconds: float) -> None:
        """Returns deliveries to the broker, in their order; without give-back they are forgotten."""
        traits = self._of_broker
        for held in several:
            if held.is_dropped or held.is_done:
                continue
            self._drop(held)
            if not traits.gives_back:
                continue
            delay = min(seconds, traits.delay_max_seconds or 0.0)
            await self._quietly(self._source.give_back(held.delivery, delay))
            self._counts.given_back += 1

    async def _quietly(self, call: Awaitable[None]) -> None:
        """A message that could not be given back comes again when the broker's lease ends."""
        try:
            await call
        except SourceUnavailable as error:
            self._counts.failed(str(error))

    def _count_let_go(self, held: HeldDelivery, why: str) -> None:
        if not held.is_claim_lost:
            log.warning(
                "source %s: message %s is let go: %s", self._one.name, held.delivery.message_id, why
            )
            self._counts.let_go += 1
        self._counts.failed(why)

    def _drop(self, held: HeldDelivery) -> None:
        held.is_dropped = True
        self.held.remove(held)
        self._released()

    def forget(self, several: Sequence[HeldDelivery]) -> None:
        """Forgets deliveries that the broker has taken away."""
        for held in several:
            self._drop(held)

    def _acknowledged(self, batch: Sequence[HeldDelivery], failed: SourceUnavailable | None) -> None:
        if failed is None:
            self._counts.acknowledged += len(batch)
        else:  # they come again and are replays
            self._counts.acks_lost += len(batch)
            self._counts.failed(str(failed))
        for held in batch:
            self.held.remove(held)
        self._released()
