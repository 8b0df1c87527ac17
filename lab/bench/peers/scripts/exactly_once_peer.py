# mypy: ignore-errors
"""exactly-once as a subject: a lease, a prober and a fingerprint, as it recommends for payments."""

from __future__ import annotations

import stand
from exactly_once import once
from exactly_once.policies import ProbeResult, Verdict, check_then_decide
from exactly_once.stores.postgres import PostgresStore
from exactly_once.stores.sqlite import SQLiteStore


class ExactlyOnce(stand.Subject):
    """The effect is guarded; the business row is written after it, idempotently."""

    def open(self):
        """Opens the store; its SQLite runs at NORMAL, raised here where equal durability is asked."""
        settings = self.settings
        if settings.store == "postgres":
            store = PostgresStore(settings.url)
        else:
            store = SQLiteStore(settings.url)
            if settings.durability == "ours":
                store._conn.execute("PRAGMA synchronous=FULL")
        self.bookings = stand.bookings_at(settings)
        leased = {"lease_ttl": settings.lease_s} if settings.effects else {}
        self.book = once(
            store,
            key=stand.key_of,
            fingerprint=lambda event: event,
            policy=check_then_decide(self.probe),
            **leased,
        )(self.claim_slot)
        return {"lease": "on" if leased else "off, as its heartbeat starts a thread for each event"}

    def probe(self, key):
        """Asks the downstream."""
        slot = self.downstream.owned_by(key)
        return ProbeResult(Verdict.COMMITTED if slot else Verdict.NOT_COMMITTED, slot)

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
    stand.serve(ExactlyOnce)
