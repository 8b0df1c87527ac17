# mypy: ignore-errors
"""Powertools for AWS Lambda as a subject: `@idempotent_function` on Valkey."""

from __future__ import annotations

import time

import redis
import stand
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer


class Invocation:
    """As much of a Lambda invocation as the library asks for: how long it still has."""

    def __init__(self, seconds):
        self._ends = time.perf_counter() + seconds

    def get_remaining_time_in_millis(self):
        """Milliseconds until the invocation is ended from outside."""
        return int(max(0.0, self._ends - time.perf_counter()) * 1000)


class Powertools(stand.Subject):
    """The effect is guarded; the business row is written after it, idempotently."""

    def open(self):
        """Connects to the server that the driver started, with a pool as large as there are workers."""
        client = redis.Redis(unix_socket_path=self.settings.url, decode_responses=True)
        self.bookings = stand.bookings_at(self.settings)
        # Not payload_validation_jmespath: with it, this version's cache layer drops the hash when a record
        # completes, so that every repeat of a settled event is refused, unchanged ones too.
        self.config = IdempotencyConfig(event_key_jmespath="key")
        if not self.settings.effects:
            self.config.register_lambda_context(Invocation(900))

        @idempotent_function(
            data_keyword_argument="order",
            persistence_store=CachePersistenceLayer(client=client),
            config=self.config,
        )
        def book(order):
            return self.downstream.call(order["key"])

        self.book = book
        return {"appendfsync": client.config_get("append*")}

    def work(self, event):
        """The guarded effect, then the row."""
        if self.settings.effects:
            self.config.register_lambda_context(Invocation(self.settings.lease_s))
        slot = self.book(order={"key": stand.key_of(event), "event": event})
        if self.settings.rows:
            self.bookings.add(event, slot)
        return {"slot": slot}

    def rows(self, key):
        """Counts business rows."""
        return self.bookings.rows(key)


if __name__ == "__main__":
    stand.serve(Powertools)
