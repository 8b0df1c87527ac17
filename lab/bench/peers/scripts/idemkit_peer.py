# mypy: ignore-errors
"""idemkit as a subject: `@idempotent` on PostgreSQL with named key fields and a fingerprint of the rest."""

from __future__ import annotations

import json

import asyncpg
import stand
from idemkit import MethodConfig, PostgresBackend, idempotent
from idemkit.backends.postgres import init_pg

POOL = 32


class Idemkit(stand.Subject):
    """The effect is guarded; the business row is written after it, idempotently."""

    tasks = True

    async def open_async(self):
        """Makes its table, its pool and the business table."""
        settings = self.settings
        await init_pg(settings.url)
        backend = PostgresBackend.from_url(settings.url)
        self.pool = await asyncpg.create_pool(settings.url, min_size=1, max_size=POOL)
        await self.pool.execute(stand.CREATE_BOOKING)
        config = MethodConfig(
            key_fields=["ref"],
            validation_fingerprint=lambda arguments: json.dumps(
                arguments["event"], sort_keys=True
            ).encode(),
            **(
                {"lease_ttl_seconds": settings.lease_s, "wait_timeout_seconds": 1}
                if settings.effects
                else {}
            ),
        )

        @idempotent(backend=backend, config=config)
        async def book(*, ref, event):
            return self.downstream.call(ref)

        self.book = book

    async def work(self, event):
        """The guarded effect, then the row."""
        ref = stand.key_of(event)
        slot = await self.book(ref=ref, event=event)
        await self.pool.execute(
            "INSERT INTO booking VALUES ($1, $2, $3) ON CONFLICT (ref) DO NOTHING",
            ref,
            event["equipment_number"],
            slot,
        )
        return {"slot": slot}

    def rows(self, key):
        """Counts business rows."""
        return stand.PostgresBookings(self.settings).rows(key)


if __name__ == "__main__":
    stand.serve(Idemkit)
