"""A consumer's word in the ledger every few seconds, and the operator's word to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from oncegate.commit.notice_operations import PostNotice
from oncegate.errors import SourceUnavailable, StoreError
from oncegate.gate.gate import GateEngine
from oncegate.sources.options import Consumption
from oncegate.sources.status import KIND, SourceStatus, pause_in, posting_of


class Reports:
    """Posts one consumer's status and reads whether it is paused."""

    def __init__(
        self, engine: GateEngine, one: Consumption, status: Callable[[], SourceStatus], every_seconds: float
    ) -> None:
        self._engine, self._one, self._status, self._every = engine, one, status, every_seconds
        self.is_paused = False

    async def run(self) -> None:
        """Reports until it is cancelled."""
        while True:
            await self.run_once()
            await asyncio.sleep(self._every)

    async def run_once(self) -> None:
        """One report; an absent ledger or broker is no reason to fail."""
        status = self._status()
        if status.kind:  # open
            status = replace(status, lag=await self._lag())
        try:
            posting = posting_of(self._one.name, status, self._engine.clock.wall_ms())
            await self._engine.submit(PostNotice(posting))
            self.is_paused = await asyncio.to_thread(self._read_pause)
        except StoreError:
            return

    async def _lag(self) -> int | None:
        try:
            return await self._one.source.lag()
        except SourceUnavailable:
            return None

    def _read_pause(self) -> bool:
        with self._engine.commits.store.look() as session:
            return pause_in(session.document(KIND, self._one.name)) is not None
