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
_LINK_OF: Final = traces.LINK_OF.replace("?", "%s")
_PUBLISHED_AS: Final = traces.PUBLISHED_AS.replace("?", "%s")


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
        rows = self._query(traces.POSTGRES_LINKED, (trace_id, tenant, tenant, limit))
        return sorted(entry for (entry,) in rows)

    def traced(self, trace_id: str, limit: int, tenant: str | None = None) -> list[TracedDelivery]:
        """Emitted events of a trace."""
        rows = self._query(traces.POSTGRES_TRACED, (trace_id.encode(), tenant, tenant, limit))
        return [traces.traced_of(row) for row in rows]

    def emitted_as(self, event_id: str, limit: int) -> list[TracedDelivery]:
        """Emitted events of this id."""
        return [traces.traced_of(row) for row in self._query(traces.POSTGRES_NAMED, (event_id, limit))]

    def published_on(self, trace_id: str, limit: int, tenant: str | None = None) -> list[TracedPublication]:
        """Published events of a trace."""
        rows = self._query(traces.POSTGRES_PUBLISHED, (trace_id.encode(), tenant, tenant, limit))
        return [traces.published_of(row) for row in rows]

    def published_as(self, event_id: str, limit: int) -> list[TracedPublication]:
        """Published events of this id."""
        return [traces.published_of(row) for row in self._query(_PUBLISHED_AS, (event_id, limit))]
