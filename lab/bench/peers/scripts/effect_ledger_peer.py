# mypy: ignore-errors
"""effect-ledger as a subject: a claim before the effect; what stays in flight waits for an operator."""

from __future__ import annotations

import stand
from effect_ledger import EffectExecutor


class EffectLedger(stand.Subject):
    """The effect is guarded; the business row is written after it, idempotently.

    What is left in flight is only decided by whoever asserts that the old worker has stopped
    (`recover(workers_stopped=True)`). A redelivery cannot know that, so it is never called here.
    """

    def open(self):
        """Opens the store; its SQLite is at FULL without a write-ahead log."""
        settings = self.settings
        if settings.store == "postgres":
            from effect_ledger.postgres import PostgresOperationStore as Store
        else:
            from effect_ledger.sqlite import SQLiteOperationStore as Store
        self.executor = EffectExecutor(store=Store(settings.url), scope="bench")
        self.bookings = stand.bookings_at(settings)
        self.book = self.executor.bind("claim-slot", self.claim_slot)
        return {}

    def claim_slot(self, operation):
        """The effect."""
        return self.downstream.call(operation.operation_id)

    def work(self, event):
        """The guarded effect, then the row; an operation that waits for a decision is a refusal."""
        operation = self.book(stand.key_of(event), event)
        if operation.state != "completed":
            raise RuntimeError(f"unresolved: {operation.state}, waits for a person")
        self.bookings.add(event, operation.result)
        return {"slot": operation.result}

    def rows(self, key):
        """Counts business rows."""
        return self.bookings.rows(key)


if __name__ == "__main__":
    stand.serve(EffectLedger)
