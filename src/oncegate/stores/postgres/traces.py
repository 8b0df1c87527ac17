"""Traces in a PostgreSQL ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.store import TracedDelivery, TracedPublication, TraceLink
from oncegate.stores.shared import traces

_LINK: Final = """
INSERT INTO oncegate_trace (entry, trace, context)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bytea[]) ON CONFLICT DO NOTHING
"""
# Deliveries are found first, along an index and no more than wanted; the rest is joined to these.
# A limit is shared between tenants: each tenant's first row, then each tenant's second. So no tenant pushes
# another tenant's rows out. An id is looked up for each destination, or tenant: its index begins with that.
_LINK_OF: Final = """
SELECT entry, trace, context FROM oncegate_trace
WHERE entry = %s
"""
_LINKED: Final = """
SELECT link.entry
FROM (SELECT entry FROM oncegate_trace
  WHERE trace = %s OFFSET 0) AS link
LEFT JOIN LATERAL (SELECT tenant FROM oncegate_entry AS one
  WHERE one.id = link.entry OFFSET 0) AS entry ON true
WHERE (CAST(%s AS text) IS NULL OR entry.tenant = (SELECT id FROM oncegate_name
    WHERE text = CAST(%s AS text)))
ORDER BY row_number() OVER (PARTITION BY entry.tenant
  ORDER BY link.entry), link.entry LIMIT %s
"""
_TRACED: Final = r"""
SELECT past.lane, past.seq, destination.text, tenant.text, lane.key, past.event, kind.text,
    past.created_at, past.context, head.seq, ack.at, coalesce(ack.attempts, dead.attempts, 0),
    coalesce(dead.error, ack.note), dead.seq IS NOT NULL
FROM (SELECT sent.* FROM oncegate_delivery AS sent
  CROSS JOIN LATERAL (SELECT tenant FROM oncegate_lane AS one
    WHERE one.id = sent.lane OFFSET 0) AS owner
  WHERE substring(sent.context FROM 14 FOR 32) = %s
  AND substring(sent.context FROM 1 FOR 13) = '\x7b2274726163655f6964223a22'::bytea
  AND (CAST(%s AS text) IS NULL OR owner.tenant = (SELECT id FROM oncegate_name
      WHERE text = CAST(%s AS text)))
  ORDER BY row_number() OVER (PARTITION BY owner.tenant
    ORDER BY sent.created_at, sent.lane, sent.seq), sent.created_at, sent.lane,
        sent.seq LIMIT %s) AS past
CROSS JOIN LATERAL (SELECT * FROM oncegate_lane AS one
  WHERE one.id = past.lane OFFSET 0) AS lane
CROSS JOIN LATERAL (SELECT * FROM oncegate_head AS one
  WHERE one.lane = past.lane OFFSET 0) AS head
JOIN oncegate_name AS destination ON destination.id = past.destination
JOIN oncegate_name AS tenant ON tenant.id = lane.tenant
JOIN oncegate_name AS kind ON kind.id = past.type
LEFT JOIN oncegate_ack AS ack ON ack.lane = past.lane AND ack.seq = past.seq
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq
ORDER BY past.created_at, past.lane, past.seq
"""
_EMITTED_AS: Final = """
SELECT past.lane, past.seq, destination.text, tenant.text, lane.key, past.event, kind.text,
    past.created_at, past.context, head.seq, ack.at, coalesce(ack.attempts, dead.attempts, 0),
    coalesce(dead.error, ack.note), dead.seq IS NOT NULL
FROM (SELECT sent.* FROM oncegate_delivery AS sent
  WHERE sent.destination IN (WITH RECURSIVE named (number) AS (SELECT min(destination) FROM
      oncegate_lane
      UNION ALL SELECT (SELECT min(destination) FROM oncegate_lane
        WHERE destination > number) FROM named
      WHERE number IS NOT NULL) SELECT number FROM named
    WHERE number IS NOT NULL)
  AND sent.event = %s
  ORDER BY sent.created_at, sent.lane, sent.seq LIMIT %s) AS past
CROSS JOIN LATERAL (SELECT * FROM oncegate_lane AS one
  WHERE one.id = past.lane OFFSET 0) AS lane
CROSS JOIN LATERAL (SELECT * FROM oncegate_head AS one
  WHERE one.lane = past.lane OFFSET 0) AS head
JOIN oncegate_name AS destination ON destination.id = past.destination
JOIN oncegate_name AS tenant ON tenant.id = lane.tenant
JOIN oncegate_name AS kind ON kind.id = past.type
LEFT JOIN oncegate_ack AS ack ON ack.lane = past.lane AND ack.seq = past.seq
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq
ORDER BY past.created_at, past.lane, past.seq
"""
_PUBLISHED_ON: Final = r"""
SELECT tenant.text, past.key, past.seq, past.event_id, past.at, past.context
FROM (SELECT * FROM oncegate_feed AS sent
  WHERE substring(sent.context FROM 14 FOR 32) = %s
  AND substring(sent.context FROM 1 FOR 13) = '\x7b2274726163655f6964223a22'::bytea
  AND (CAST(%s AS text) IS NULL OR sent.tenant = (SELECT id FROM oncegate_name
      WHERE text = CAST(%s AS text)))
  ORDER BY row_number() OVER (PARTITION BY sent.tenant
    ORDER BY sent.at, sent.tenant, sent.seq), sent.at, sent.tenant, sent.seq LIMIT %s) AS past
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
  AND sent.event_id = %s
  ORDER BY sent.at, sent.tenant, sent.seq LIMIT %s) AS past
JOIN oncegate_name AS tenant ON tenant.id = past.tenant
ORDER BY past.at, past.tenant, past.seq
"""


class PostgresTraces:
    """Link, look up."""

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def link(self, links: Sequence[TraceLink]) -> None:
        """Keeps the place of entries; in their order, so that two writers never wait for each other."""
        ordered = sorted(links, key=lambda one: one.entry_id)
        columns = [[one.entry_id, one.trace_id, one.context] for one in ordered]
        self._query(_LINK, tuple(map(list, zip(*columns, strict=True))))

    def link_of(self, entry_id: int) -> TraceLink | None:
        """Finds an entry's place."""
        rows = self._query(_LINK_OF, (entry_id,))
        return TraceLink(rows[0][0], rows[0][1], bytes(rows[0][2])) if rows else None

    def linked(self, trace_id: str, limit: int, tenant: str | None = None) -> list[int]:
        """Entries of a trace."""
        rows = self._query(_LINKED, (trace_id, tenant, tenant, limit))
        return sorted(entry for (entry,) in rows)

    def traced(self, trace_id: str, limit: int, tenant: str | None = None) -> list[TracedDelivery]:
        """Emitted events of a trace."""
        rows = self._query(_TRACED, (trace_id.encode(), tenant, tenant, limit))
        return [traces.traced_of(row) for row in rows]

    def emitted_as(self, event_id: str, limit: int) -> list[TracedDelivery]:
        """Emitted events of this id."""
        return [traces.traced_of(row) for row in self._query(_EMITTED_AS, (event_id, limit))]

    def published_on(self, trace_id: str, limit: int, tenant: str | None = None) -> list[TracedPublication]:
        """Published events of a trace."""
        rows = self._query(_PUBLISHED_ON, (trace_id.encode(), tenant, tenant, limit))
        return [traces.published_of(row) for row in rows]

    def published_as(self, event_id: str, limit: int) -> list[TracedPublication]:
        """Published events of this id."""
        return [traces.published_of(row) for row in self._query(_PUBLISHED_AS, (event_id, limit))]
