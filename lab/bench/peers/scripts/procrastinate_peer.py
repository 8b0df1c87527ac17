# mypy: ignore-errors
"""procrastinate as a subject: an event is a job whose `lock` is the key."""

from __future__ import annotations

import asyncio

import procrastinate
import stand

POOL = 32
CONCURRENCY = 256


class Procrastinate(stand.Subject):
    """Defer, and wait until the worker in the same process has run the job.

    Jobs of a dead worker are retried by the recipe of its documentation, in place of its periodic task.
    """

    tasks = True

    async def open_async(self):
        """Makes its tables, opens the pool and starts a worker."""
        settings = self.settings
        connector = procrastinate.PsycopgConnector(conninfo=settings.url, min_size=4, max_size=POOL)
        self.app = procrastinate.App(connector=connector)
        self.bookings = stand.PostgresBookings(settings)
        self.waiting = {}

        @self.app.task(name="book", queue="bench")
        async def book(event):
            slot = self.downstream.call(stand.key_of(event))
            await self._add_row(event, slot)
            for done in self.waiting.pop(stand.key_of(event), ()):  # every delivery of the key that waits
                if not done.done():
                    done.set_result(slot)

        self.task = book
        await self.app.open_async()
        if await self._is_new(connector):
            await self.app.schema_manager.apply_schema_async()
        beat = {"update_heartbeat_interval": settings.lease_s / 4} if settings.effects else {}
        self.worker = asyncio.get_running_loop().create_task(
            self.app.run_worker_async(
                concurrency=CONCURRENCY,
                install_signal_handlers=False,
                fetch_job_polling_interval=0.5,
                stalled_worker_timeout=30.0,
                **beat,
            )
        )

    async def _is_new(self, connector):
        found = await connector.execute_query_one_async(
            "SELECT to_regclass('procrastinate_jobs')::text AS found"
        )
        return found["found"] is None

    async def _add_row(self, event, slot):
        row = (stand.key_of(event), event["equipment_number"], slot)
        async with self.app.connector.pool.connection() as connection:
            await connection.execute(stand.INSERT_BOOKING, row)

    async def _retry_stalled(self):
        since = {"seconds_since_heartbeat": self.settings.lease_s}
        for job in await self.app.job_manager.get_stalled_jobs(**since):
            await self.app.job_manager.retry_job(job)

    async def work(self, event):
        """Defers the job and waits until it has been run."""
        key = stand.key_of(event)
        if self.settings.effects:
            await self._retry_stalled()
        done = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(key, []).append(done)
        await self.task.configure(lock=key).defer_async(event=event)
        async with asyncio.timeout(3 * self.settings.lease_s if self.settings.effects else 60):
            return {"slot": await done}

    def rows(self, key):
        """Counts business rows."""
        return self.bookings.rows(key)


if __name__ == "__main__":
    stand.serve(Procrastinate)
