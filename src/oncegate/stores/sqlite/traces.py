"""Traces in the embedded ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from oncegate.store import TracedDelivery, TracedPublication, TraceLink
from oncegate.stores.shared import traces

# Deliveries are found first, along an index and no more than wanted; the rest is joined to these.
# A limit is shared between tenants: each tenant's first row, then each tenant's second. So no tenant pushes
# another tenant's rows out. An id is looked up for each destination, or tenant: its index begins with that.
_LINK: Final = """
INSERT INTO oncegate_trace (entry, trace, context) VALUES (?, ?, ?) ON CONFLICT DO NOTHING
"""
_LINK_OF: Final = """
SELECT entry, trace, context FROM oncegate_trace
WHERE entry = ?
"""
_LINKED: Final = """
SELECT link.entry
FROM (SELECT entry FROM oncegate_trace
  WHERE trace = ? ) AS link
LEFT JOIN oncegate_entry AS entry ON entry.id = link.entry
WHERE (CAST(? AS text) IS NULL OR entry.tenant = (SELECT id FROM oncegate_name
    WHERE text = CAST(? AS text)))
ORDER BY row_number() OVER (PARTITION BY entry.tenant
  ORDER BY link.entry), link.entry LIMIT ?
"""
_TRACED: Final = """
SELECT past.lane, past.seq, destination.text, tenant.text, lane.key, past.event, kind.text,
    past.created_at, past.context, lane.seq, ack.at, coalesce(ack.attempts, dead.attempts, 0),
    coalesce(dead.error, ack.note), dead.seq IS NOT NULL
FROM (SELECT sent.* FROM oncegate_delivery AS sent
  JOIN oncegate_lane AS owner ON owner.id = sent.lane
  WHERE substr(sent.context, 14, 32) = ?
  AND substr(sent.context, 1, 13) = x'7b2274726163655f6964223a22'
  AND (CAST(? AS text) IS NULL OR owner.tenant = (SELECT id FROM oncegate_name
      WHERE text = CAST(? AS text)))
  ORDER BY row_number() OVER (PARTITION BY owner.tenant
    ORDER BY sent.created_at, sent.lane, sent.seq), sent.created_at, sent.lane,
        sent.seq LIMIT ?) AS past
JOIN oncegate_lane AS lane ON lane.id = past.lane
JOIN oncegate_name AS destination ON destination.id = past.destination
JOIN oncegate_name AS tenant ON tenant.id = lane.tenant
JOIN oncegate_name AS kind ON kind.id = past.type
LEFT JOIN oncegate_ack AS ack ON ack.delivery = past.id
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq
ORDER BY past.created_at, past.lane, past.seq
"""
_EMITTED_AS: Final = """
SELECT past.lane, past.seq, destination.text, tenant.text, lane.key, past.event, kind.text,
    past.created_at, past.context, lane.seq, ack.at, coalesce(ack.attempts, dead.attempts, 0),
    coalesce(dead.error, ack.note), dead.seq IS NOT NULL
FROM (SELECT sent.* FROM oncegate_delivery AS sent
  WHERE sent.destination IN (WITH RECURSIVE named (number) AS (SELECT min(destination) FROM
      oncegate_lane
      UNION ALL SELECT (SELECT min(destination) FROM oncegate_lane
        WHERE destination > number) FROM named
      WHERE number IS NOT NULL) SELECT number FROM named
    WHERE number IS NOT NULL)
  AND sent.event = ?
  ORDER BY sent.created_at, sent.lane, sent.seq LIMIT ?) AS past
JOIN oncegate_lane AS lane ON lane.id = past.lane
JOIN oncegate_name AS destination ON destination.id = past.destination
JOIN oncegate_name AS tenant ON tenant.id = lane.tenant
JOIN oncegate_name AS kind ON kind.id = past.type
LEFT JOIN oncegate_ack AS ack ON ack.delivery = past.id
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq
ORDER BY past.created_at, past.lane, past.seq
"""
_PUBLISHED_ON: Final = """
SELECT tenant.text, past.key, past.seq, past.event_id, past.at, past.context
FROM (SELECT * FROM oncegate_feed AS sent
  WHERE substr(sent.context, 14, 32) = ?
  AND substr(sent.context, 1, 13) = x'7b2274726163655f6964223a22'
  AND (CAST(? AS text) IS NULL OR sent.tenant = (SELECT id FROM oncegate_name
      WHERE text = CAST(? AS text)))
  ORDER BY row_number() OVER (PARTITION BY sent.tenant
    ORDER BY sent.at, sent.tenant, sent.seq), sent.at, sent.tenant, sent.seq LIMIT ?) AS past
JOIN oncegate_name AS tenant ON tenant.id = past.tenant
ORDER BY past.at, past.tenant, past.seq
"""
_PUBLISHED_AS: Final = """
SELECT tenant.text, past.key, past.seq, past.event_id, past.at, past.context
FROM (SELECT * FROM oncegate_feed AS sent
  WHERE sent.tenant IN (WITH RECURSIVE named (number) AS (SELECT min(tenant) FROM oncegate_feed_key
      UNION ALL SELECT (SELECT min(tenant) FROM oncegate_feed_key
        WHERE tenant > number) FROM named
      WHERE number IS NOT NULL) SELECT number FROM named
    WHERE number IS NOT NULL)
  AND sent.event_id = ?
  ORDER BY sent.at, sent.tenant, sent.seq LIMIT ?) AS past
JOIN oncegate_name AS tenant ON tenant.id = past.tenant
ORDER BY past.at, past.tenant, past.seq
"""


class SqliteTraces:
    """Link, look up."""

    _connection: sqlite3.Connection

    def link(self, links: Sequence[TraceLink]) -> None:
        """Keeps the place of entries."""
        rows = [(one.entry_id, one.trace_id, one.context) for one in links]
        self._connection.executemany(_LINK, rows)

    def link_of(self, entry_id: int) -> TraceLink | None:
        """Finds an entry's place."""
        row = self._connection.execute(_LINK_OF, (entry_id,)).fetchone()
        return None if row is None else TraceLink(row[0], row[1], bytes(row[2]))

    def linked(self, trace_id: str, limit: int, tenant: str | None = None) -> list[int]:
        """Entries of a trace."""
        asked = (trace_id, tenant, tenant, limit)
        rows = self._connection.execute(_LINKED, asked).fetchall()
        return sorted(entry for (entry,) in rows)

    def traced(self, trace_id: str, limit: int, tenant: str | None = None) -> list[TracedDelivery]:
        """Emitted events of a trace."""
        rows = self._connection.execute(_TRACED, (trace_id.encode(), tenant, tenant, limit)).fetchall()
        return [traces.traced_of(row) for row in rows]

    def emitted_as(self, event_id: str, limit: int) -> list[TracedDelivery]:
        """Emitted events of this id."""
        rows = self._connection.execute(_EMITTED_AS, (event_id, limit)).fetchall()
        return [traces.traced_of(row) for row in rows]

    def published_on(self, trace_id: str, limit: int, tenant: str | None = None) -> list[TracedPublication]:
        """Published events of a trace."""
        rows = self._connection.execute(
            _PUBLISHED_ON, (trace_id.encode(), tenant, tenant, limit)
        ).fetchall()
        return [traces.published_of(row) for row in rows]

    def published_as(self, event_id: str, limit: int) -> list[TracedPublication]:
        """Published events of this id."""
        rows = self._connection.execute(_PUBLISHED_AS, (event_id, limit)).fetchall()
        return [traces.published_of(row) for row in rows]
