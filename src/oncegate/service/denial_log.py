"""Refusals on record: who got 401, 403 or 404, where and how often, in the ledger's registry.

Each partner has one small document; every change of it leaves a log record. Refusals are gathered: a
thousand a second make one write a minute. A crash loses the last few moments of them. Must never hold what
was asked for: a path or an id may be a secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from typing import Final

import msgspec

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.registry_operations import ChangeDocument
from oncegate.errors import StoreError
from oncegate.store import Document, DocumentChange

KIND: Final = "refusals"
STRANGER: Final = "(nobody)"
NOTED: Final = frozenset({401, 403, 404})
FIRST_WITHIN_SECONDS: Final = 0.5
NEXT_AFTER_SECONDS: Final = 60.0
TRIES_MAX: Final = 5

log: Final = logging.getLogger("oncegate.service")


class DenialCount(msgspec.Struct, frozen=True):
    """How often a caller was refused, by route and status, and when last."""

    counts: dict[str, int]
    last_at_ms: int


class DenialLog:
    """Gathers the refusals of one process and writes them down."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits, self._clock = commits, clock
        self._gathered: dict[str, Counter[str]] = {}
        self._writing: asyncio.Task[None] | None = None

    def note(self, partner: str | None, route: str, status: int) -> None:
        """Remembers a refusal; `partner` and `route` are names of ours, so that there are few of them."""
        self._gathered.setdefault(partner or STRANGER, Counter())[f"{route} {status}"] += 1
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        await self._clock.pause_async(FIRST_WITHIN_SECONDS)
        while True:
            with contextlib.suppress(StoreError):  # kept in memory until the ledger is back
                await asyncio.to_thread(self.write)
            await self._clock.pause_async(NEXT_AFTER_SECONDS)

    def write(self) -> None:
        """Writes down what was gathered; from a thread."""
        for name in list(self._gathered):
            counts = self._gathered.pop(name)
            try:
                self._add(name, counts)
            except StoreError:
                self._gathered.setdefault(name, Counter()).update(counts)
                raise

    def _add(self, name: str, counts: Counter[str]) -> None:
        note = f"{name} was refused: " + ", ".join(f"{what} x{n}" for what, n in sorted(counts.items()))
        for _ in range(TRIES_MAX):
            known, now_ms = self._document(name), self._clock.wall_ms()
            before = Counter[str]() if known is None else Counter(_decode(known.body).counts)
            body = msgspec.json.encode(DenialCount(dict(before + counts), now_ms), order="sorted")
            version = 0 if known is None else known.version
            wanted = DocumentChange(KIND, name, version, body, now_ms, name, note[:300])
            if self._commits.submit(ChangeDocument(wanted)):
                return
        log.warning("refusals of %s could not be written: others write them all the time", name)

    def _document(self, name: str) -> Document | None:
        with self._commits.store.look() as session:
            return session.document(KIND, name)

    async def close(self) -> None:
        """Writes down what is left, if the ledger is there."""
        if self._writing is None:
            return
        self._writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._writing
        with contextlib.suppress(StoreError):
            await asyncio.to_thread(self.write)


_decode: Final = msgspec.json.Decoder(DenialCount).decode
