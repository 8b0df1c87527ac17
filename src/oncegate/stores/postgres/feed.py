"""The feed on PostgreSQL. Mixed into the session.

Transactions commit in another order than they write. So an event is written without a position, and a
reader gives positions to what it sees committed, holding the tenant's row until it has committed that: two
readers never number at once, and what is committed later gets a later position. Nothing waits for
transactions that are still open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.store.feed import (
    Acked,
    EventToPublish,
    FeedAck,
    FeedEvent,
    FeedPage,
    FeedWanted,
    Published,
    ReaderPosition,
)
from oncegate.stores.postgres.feed_statement_generators import FIND, publish
from oncegate.stores.postgres.names import Names
from oncegate.stores.postgres.statement_generators import perform
from oncegate.stores.shared.publishing import oldest_prefix

NUMBERED_AT_ONCE_MAX: Final = 10_000  # keeps the step short after a long time without readers

_HAS_FRESH: Final = "SELECT 1 FROM oncegate_feed WHERE tenant = %s AND position IS NULL LIMIT 1"
_HOLD: Final = """
INSERT INTO oncegate_feed_tenant AS ends (tenant, last) VALUES (%s, 0)
ON CONFLICT (tenant) DO UPDATE SET last = ends.last RETURNING last
"""
# A statement of its own after the lock: it must see what the reader before has numbered.
_NUMBER: Final = """
WITH fresh AS MATERIALIZED (
    SELECT id, row_number() OVER (ORDER BY id) AS place FROM (
        SELECT id FROM oncegate_feed WHERE tenant = %s AND position IS NULL ORDER BY id LIMIT %s
    ) AS oldest
),
numbered AS (
    UPDATE oncegate_feed AS event SET position = %s + fresh.place FROM fresh WHERE event.id = fresh.id
)
UPDATE oncegate_feed_tenant SET last = last + (SELECT count(*) FROM fresh) WHERE tenant = %s
"""
_ENDS: Final = "SELECT floor, last FROM oncegate_feed_tenant WHERE tenant = %s"
_STANDS: Final = "SELECT position FROM oncegate_feed_reader WHERE tenant = %s AND reader = %s"
# A large body is stored apart, and its length is known without reading it.
_AFTER: Final = """
SELECT position, event_id, key, seq, body, at, context FROM (
    SELECT *, sum(octet_length(body)) OVER so_far AS bytes, row_number() OVER so_far AS place FROM (
        SELECT position, event_id, key, seq, body, at, context FROM oncegate_feed
        WHERE tenant = %s AND position > %s ORDER BY position LIMIT %s
    ) AS following WINDOW so_far AS (ORDER BY position ROWS UNBOUNDED PRECEDING)
) AS page
WHERE bytes <= %s OR place = 1 ORDER BY position
"""
_EVENT: Final = """
SELECT coalesce(position, 0), event_id, key, seq, body, at, context FROM oncegate_feed
WHERE tenant = %s AND event_id = %s
"""
_UNREAD: Final = (
    "SELECT DISTINCT tenant FROM oncegate_feed WHERE position IS NULL AND at < %s ORDER BY tenant"
)
_ACK: Final = """
INSERT INTO oncegate_feed_reader AS reader (tenant, reader, position, at)
SELECT tenant, %s, %s, %s FROM oncegate_feed_tenant WHERE tenant = %s AND last >= %s
ON CONFLICT (tenant, reader) DO UPDATE SET position = excluded.position, at = excluded.at
WHERE excluded.position > reader.position RETURNING position
"""
_POSITIONS: Final = """
SELECT name.text, reader.reader, reader.position, reader.at,
       greatest(coalesce(ends.last, 0) - greatest(reader.position, coalesce(ends.floor, 0)), 0)
       + (SELECT count(*) FROM oncegate_feed AS fresh
          WHERE fresh.tenant = reader.tenant AND fresh.position IS NULL),
       (SELECT at FROM oncegate_feed AS event
        WHERE event.tenant = reader.tenant AND (event.position > reader.position OR event.position IS NULL)
        ORDER BY event.position LIMIT 1)
FROM oncegate_feed_reader AS reader
JOIN oncegate_name AS name ON name.id = reader.tenant
LEFT JOIN oncegate_feed_tenant AS ends ON ends.tenant = reader.tenant
WHERE %s::text IS NULL OR name.text = %s::text
ORDER BY name.text, reader.reader
"""
_OLDEST: Final = """
SELECT position, at FROM oncegate_feed WHERE tenant = %s AND position > %s ORDER BY position LIMIT %s
"""
_FLOOR: Final = "UPDATE oncegate_feed_tenant SET floor = %s WHERE tenant = %s"
_REMOVE: Final = "DELETE FROM oncegate_feed WHERE tenant = %s AND position <= %s RETURNING 1"
_SECRET: Final = "SELECT value FROM oncegate_meta WHERE name = 'feed_secret'"


class PostgresFeed:
    """Publishing, reading, acknowledging."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def publish(self, wanted: Sequence[EventToPublish]) -> list[Published]:
        """Adds events; keys are locked in one order, so that two batches never wait for each other."""
        self._begin()
        numbers = self._names.learn(item.tenant for item in wanted)
        answers: list[Published | None] = [None] * len(wanted)
        for place in sorted(range(len(wanted)), key=lambda n: (wanted[n].tenant, wanted[n].key)):
            item = wanted[place]
            answers[place] = perform(publish(numbers[item.tenant], item), self._send)
        return [answer for answer in answers if answer is not None]

    def _send(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._query(sql, tuple(parameters))

    def read_feed(self, wanted: FeedWanted) -> FeedPage:
        """Numbers what is committed, then reads events after a position."""
        self._begin()
        tenant = self._names.find(wanted.tenant) or -1
        if self._query(_HAS_FRESH, (tenant,)):
            self._number(tenant)
        floor, last = (self._query(_ENDS, (tenant,)) or [(0, 0)])[0]
        after = wanted.after
        if after is None:
            ((after,),) = self._query(_STANDS, (tenant, wanted.reader)) or [(0,)]
        rows = self._query(_AFTER, (tenant, after, wanted.limit, wanted.bytes_max))
        return FeedPage(after, tuple(_event(row) for row in rows), floor, last)

    def _number(self, tenant: int) -> None:
        ((last,),) = self._query(_HOLD, (tenant,))
        self._query(_NUMBER, (tenant, NUMBERED_AT_ONCE_MAX, last, tenant))

    def ack_feed(self, acks: Sequence[FeedAck]) -> list[Acked]:
        """Moves readers forward; rows are locked in one order."""
        self._begin()
        numbers = self._names.learn(ack.tenant for ack in acks)
        answers: dict[int, Acked] = {}
        for place in sorted(range(len(acks)), key=lambda n: (acks[n].tenant, acks[n].reader)):
            answers[place] = self._ack(numbers[acks[place].tenant], acks[place])
        return [answers[place] for place in range(len(acks))]

    def _ack(self, tenant: int, ack: FeedAck) -> Acked:
        moved = self._query(_ACK, (ack.reader, ack.position, ack.at_ms, tenant, ack.position))
        ((position,),) = moved or self._query(_STANDS, (tenant, ack.reader)) or [(0,)]
        return Acked(position, bool(moved))

    def find_published(self, tenant: str, event_id: str) -> tuple[bytes, int] | None:
        """Reads an event's fingerprint and seq."""
        rows = self._query(FIND, (self._names.find(tenant) or -1, event_id))
        return (bytes(rows[0][0]), rows[0][1]) if rows else None

    def published_event(self, tenant: str, event_id: str) -> FeedEvent | None:
        """Reads one event by its id."""
        rows = self._query(_EVENT, (self._names.find(tenant) or -1, event_id))
        return _event(rows[0]) if rows else None

    def reader_positions(self, tenant: str | None = None) -> list[ReaderPosition]:
        """Tells where readers stand; events without a position yet count as not read."""
        return [ReaderPosition(*row) for row in self._query(_POSITIONS, (tenant, tenant))]

    def forget_published(self, before_ms: int, limit: int) -> int:
        """Removes the oldest events of every feed, also of one that was never read."""
        self._begin()
        for (tenant,) in self._query(_UNREAD, (before_ms,)):
            self._number(tenant)
        tenants = self._query(
            "SELECT tenant, floor FROM oncegate_feed_tenant ORDER BY tenant FOR UPDATE", ()
        )
        return sum(self._forget(tenant, floor, before_ms, limit) for tenant, floor in tenants)

    def _forget(self, tenant: int, floor: int, before_ms: int, limit: int) -> int:
        rows = [(position, at) for position, at in self._query(_OLDEST, (tenant, floor, limit))]
        up_to = oldest_prefix(rows, before_ms)
        if up_to is None:
            return 0
        self._query(_FLOOR, (up_to, tenant))
        return len(self._query(_REMOVE, (tenant, up_to)))

    def feed_secret(self) -> bytes:
        """The secret that was made with the ledger."""
        ((secret,),) = self._query(_SECRET, ())
        return str(secret).encode()


def _event(row: tuple[Any, ...]) -> FeedEvent:
    position, event_id, key, seq, body, at_ms, context = row
    return FeedEvent(position, event_id, key, seq, bytes(body), at_ms, bytes(context or b""))
