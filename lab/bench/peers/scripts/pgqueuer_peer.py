# mypy: ignore-errors
"""PgQueuer as a subject: an event is a job whose `dedupe_key` is the key."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import asyncpg
import stand
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

POOL = 32
BATCH = 100


class PgQueuerSubject(stand.Subject):
    """Enqueue, and wait until the worker in the same process has run the job.

    Its own record that the job has ended follows a little later, in a batch; it is not waited for.
    """

    tasks = True

    async def open_async(self):
        """Makes its tables, opens the pool and starts a worker."""
        settings = self.settings
        self.waiting = {}
        self.pool = await asyncpg.create_pool(settings.url, min_size=2, max_size=POOL)
        await self.pool.execute(stand.CREATE_BOOKING)
        self.queries = Queries(AsyncpgPoolDriver(self.pool))
        if not await self.queries.schema_is_installed():
            await self.queries.install()
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(settings.url)))
        queuer.entrypoint("book")(self._run_job)
        beat = {"heartbeat_timeout": timedelta(seconds=settings.lease_s)} if settings.effects else {}
        self.worker = asyncio.get_running_loop().create_task(
            queuer.qm.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=0.5), **beat)
        )

    async def _run_job(self, job):
        event = json.loads(job.payload)
        key = stand.key_of(event)
        slot = self.downstream.call(key)
        await self.pool.execute(
            "INSERT INTO booking VALUES ($1, $2, $3) ON CONFLICT (ref) DO NOTHING",
            key,
            event["equipment_number"],
            slot,
        )
        for done in self.waiting.pop(key, ()):  # every delivery of the key that waits
            if not done.done():
                done.set_result(slot)

    async def work(self, event):
        """Enqueues the job and waits until it has been run."""
        key = stand.key_of(event)
        done = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(key, []).append(done)
        (job,) = await self.queries.enqueue(
            ["book"], [json.dumps(event).encode()], [0], dedupe_key=[key], on_conflict="skip"
        )
        patience = 3 * self.settings.lease_s if self.settings.effects else 60
        async with asyncio.timeout(patience):
            return {"slot": await done if job is not None else await self._slot_of(key)}

    async def _slot_of(self, key):
        """What another job of the same key booked, once it has; it was skipped for that job's sake."""
        while (slot := await self.pool.fetchval("SELECT slot FROM booking WHERE ref = $1", key)) is None:
            await asyncio.sleep(0.05)
        return slot

    def rows(self, key):
        """Counts business rows."""
        return stand.PostgresBookings(self.settings).rows(key)


if __name__ == "__main__":
    stand.serve(PgQueuerSubject)
