# mypy: ignore-errors
"""justonce as a subject: `@idempotent` with key and payload; it has no way of asking a downstream."""

from __future__ import annotations

import stand
from justonce import configure, idempotent
from justonce.stores.sqlite import SqliteStore


class JustOnce(stand.Subject):
    """The effect is guarded; the business row is written after it, idempotently."""

    def open(self):
        """Opens the store; its SQLite comes at FULL, its PostgreSQL connects anew for each statement."""
        settings = self.settings
        if settings.store == "postgres":
            from justonce.stores.postgres import PostgresStore

            store = PostgresStore(settings.url)
        else:
            store = SqliteStore(settings.url)
        self.bookings = stand.bookings_at(settings)
        configure(store, **({"ttl_seconds": settings.lease_s} if settings.effects else {}))
        self.book = idempotent(key=stand.key_of, payload=lambda event: event)(self.claim_slot)
        return {}

    def claim_slot(self, event):
        """The effect."""
        return self.downstream.call(stand.key_of(event))

    def work(self, event):
        """The guarded effect, then the row."""
        slot = self.book(event)
        self.bookings.add(event, slot)
        return {"slot": slot}

    def rows(self, key):
        """Counts business rows."""
        return self.bookings.rows(key)


if __name__ == "__main__":
    stand.serve(JustOnce)
