"""Whether the ledger can be written: found out by writing to it, as an event would be.

A full disk or a read-only server lets every read pass. So `/readyz` posts a notice of about an event's
size, which replaces the one before. One probe serves all who ask at the same time, and its result holds for
a second: strangers cannot make it a load.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import Final

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.notice_operations import PostNotice
from oncegate.errors import StoreError
from oncegate.store import Posting

WITHIN_SECONDS: Final = 2.0
HOLDS_MS: Final = 1_000
KEEP_MS: Final = 60_000
PROBE_BYTES: Final = 8 * 1024  # more than fits into a page that is half empty
WRITERS_MAX: Final = 100
KIND: Final = "readiness"


class Readiness:
    """Probes one ledger, in one event loop."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits, self._clock = commits, clock
        self._writer = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._probing: asyncio.Task[bool] | None = None
        self._probed_at_ms = -HOLDS_MS
        self._is_writable = False

    async def can_write(self) -> bool:
        """Whether a write was committed within the last second, or is within the next two."""
        if self._clock.ticks_ms() - self._probed_at_ms < HOLDS_MS:
            return self._is_writable
        if self._probing is None:
            self._probing = asyncio.create_task(self._probe())
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                return await asyncio.shield(self._probing)
        except TimeoutError:
            return False

    async def _probe(self) -> bool:
        body = secrets.token_bytes(PROBE_BYTES)
        at_ms = self._clock.wall_ms()
        wanted = Posting(KIND, KIND, self._writer, body, at_ms, KEEP_MS, kept_max=WRITERS_MAX)
        try:
            self._is_writable = await self._commits.submit_async(PostNotice(wanted))
        except StoreError:
            self._is_writable = False
        finally:
            self._probing = None
        self._probed_at_ms = self._clock.ticks_ms()
        return self._is_writable
