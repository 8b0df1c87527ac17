"""Acknowledgements in batches: what finishes while one batch is on its way goes into the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from oncegate.errors import SourceUnavailable
from oncegate.sources.contract import Source
from oncegate.sources.held import HeldDelivery

Ended = Callable[[Sequence[HeldDelivery], SourceUnavailable | None], None]


class AckBatches:
    """Sends acknowledgements, one batch at a time; `ended` hears what came of each."""

    def __init__(self, source: Source, ended: Ended) -> None:
        self._source, self._ended = source, ended
        self._waiting: list[HeldDelivery] = []
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def put(self, held: HeldDelivery) -> None:
        """Adds a delivery whose event is on record."""
        self._waiting.append(held)
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Sends until it is cancelled; what is no SourceUnavailable is raised."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            await self._send(batch)
            if not self._waiting:
                self._idle.set()

    async def _send(self, batch: list[HeldDelivery]) -> None:
        failed = None
        try:
            await self._source.ack([held.delivery for held in batch if not held.is_dropped])
        except SourceUnavailable as error:
            failed = error
        self._ended(batch, failed)

    async def flushed(self) -> None:
        """Waits until nothing waits to be acknowledged."""
        await self._idle.wait()
