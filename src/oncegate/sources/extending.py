"""Holds messages at the broker while they wait or their handler runs; never for ever."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Final

from oncegate.clock import Clock
from oncegate.errors import SourceUnavailable
from oncegate.gate.surface import Surface
from oncegate.sources.contract import Traits
from oncegate.sources.counting import ConsumerCounts
from oncegate.sources.held import HeldDeliveries, HeldDelivery
from oncegate.sources.options import Consumption

PER_LEASE: Final = 3  # two extensions may fail before the broker delivers again

log = logging.getLogger("oncegate.sources")


class Extender:
    """Extends all that one consumer holds, from receipt on, until the handler's or the broker's limit."""

    def __init__(
        self, one: Consumption, surface: Surface, held: HeldDeliveries, counts: ConsumerCounts, clock: Clock
    ) -> None:
        self._one, self._held, self._counts, self._clock = one, held, counts, clock
        rule = surface.rule
        self._runs_max_ms = (rule.time_limit + rule.lease) / timedelta(milliseconds=1)

    async def run(self, traits: Traits) -> None:
        """Extends until it is cancelled."""
        every = (traits.lease_seconds or 0.0) / PER_LEASE
        while True:
            await asyncio.sleep(every)
            await self.run_once(traits)

    async def run_once(self, traits: Traits) -> None:
        """Extends everything once; a broker that is away is asked again at the next turn."""
        asked_ms = self._clock.ticks_ms()
        due = [held for held in self._held if self._may_extend(held, traits, asked_ms)]
        if not due:
            return
        try:
            await self._one.source.extend([held.delivery for held in due])
        except SourceUnavailable as error:
            self._counts.failed(str(error))
            return
        for held in due:
            held.extended_ms = asked_ms

    def _may_extend(self, held: HeldDelivery, traits: Traits, now_ms: int) -> bool:
        if held.is_let_go:
            return False
        if held.started_ms is not None and now_ms - held.started_ms > self._runs_max_ms:
            self._let_go(held, f"its handler has run for more than {self._runs_max_ms / 1000:g} s")
        elif traits.hold_max_seconds is not None:
            left_ms = (traits.hold_max_seconds - (traits.lease_seconds or 0.0)) * 1000
            if now_ms - held.received_ms > left_ms:
                self._let_go(held, f"the broker lets it be held for {traits.hold_max_seconds:g} s")
        return not held.is_let_go

    def _let_go(self, held: HeldDelivery, why: str) -> None:
        """What its handler still records counts; without, the broker delivers it again."""
        held.is_let_go = True
        self._counts.let_go += 1
        said = f"message {held.delivery.message_id} is not extended any more: {why}"
        self._counts.failed(said)
        log.warning("source %s: %s", self._one.name, said)
