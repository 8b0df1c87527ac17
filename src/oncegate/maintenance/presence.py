"""Presence: a worker says in the ledger that it has looked after its surfaces, so that its end is noticed.

Said after a run that ended, not by a timer: a worker that hangs falls silent. The signal `worker_absent`
reads it.
"""

from __future__ import annotations

import os
import socket
from contextlib import closing
from datetime import timedelta
from typing import Final

import msgspec

from oncegate.clock import Clock
from oncegate.errors import StoreError
from oncegate.store import Posting, Store
from oncegate.store.notices import WORKER, WORKERS_MAX, WorkerWord

SAY_EVERY_MS: Final = 15_000
KEPT_MS: Final = 30 * 86_400_000  # how long it is remembered when a worker was last seen


class Presence:
    """Says that one process is at work; `every` is the time between two of its runs."""

    def __init__(self, store: Store, clock: Clock, every: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._every_ms = every // timedelta(milliseconds=1)
        self._writer = f"{socket.gethostname()[:80]}, process {os.getpid()}"
        self._said_at: int | None = None

    def say(self, surfaces: list[str]) -> None:
        """Says it, at most every 15 s; a ledger that is away is no reason to fail a run."""
        now = self._clock.ticks_ms()
        if self._said_at is not None and now - self._said_at < SAY_EVERY_MS:
            return
        word = msgspec.json.encode(WorkerWord(self._every_ms, tuple(surfaces)))
        posting = Posting(
            WORKER, WORKER, self._writer, word, self._clock.wall_ms(), KEPT_MS, kept_max=WORKERS_MAX
        )
        try:
            with closing(self._store.connect()) as session, session.unit():
                session.post(posting)
        except StoreError:
            return
        self._said_at = now
