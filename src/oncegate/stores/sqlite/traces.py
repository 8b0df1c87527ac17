"""Traces in the embedded ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from oncegate.store import TracedDelivery, TracedPublication, TraceLink
from oncegate.stores.shared import traces


class SqliteTraces:
    """Link, look up."""

    _connection: sqlite3.Connection

    def link(self, links: Sequence[TraceLink]) -> None:
        """Keeps the place of entries."""
        rows = [(one.entry_id, one.trace_id, one.context) for one in links]
        self._connection.executemany(traces.LINK, rows)

    def link_of(self, entry_id: int) -> TraceLink | None:
        """Finds an entry's place."""
        row = self._connection.execute(traces.LINK_OF, (entry_id,)).fetchone()
        return None if row is None else TraceLink(row[0], row[1], bytes(row[2]))

    def linked(self, trace_id: str, limit: int, tenant: str | None = None) -> list[int]:
        """Entries of a trace."""
        asked = (trace_id, tenant, tenant, limit)
        rows = self._connection.execute(traces.SQLITE_LINKED, asked).fetchall()
        return sorted(entry for (entry,) in rows)

    def traced(self, trace_id: str, limit: int, tenant: str | None = None) -> list[TracedDelivery]:
        """Emitted events of a trace."""
        rows = self._connection.execute(
            traces.SQLITE_TRACED, (trace_id.encode(), tenant, tenant, limit)
        ).fetchall()
        return [traces.traced_of(row) for row in rows]

    def emitted_as(self, event_id: str, limit: int) -> list[TracedDelivery]:
        """Emitted events of this id."""
        rows = self._connection.execute(traces.SQLITE_NAMED, (event_id, limit)).fetchall()
        return [traces.traced_of(row) for row in rows]

    def published_on(self, trace_id: str, limit: int, tenant: str | None = None) -> list[TracedPublication]:
        """Published events of a trace."""
        rows = self._connection.execute(
            traces.SQLITE_PUBLISHED, (trace_id.encode(), tenant, tenant, limit)
        ).fetchall()
        return [traces.published_of(row) for row in rows]

    def published_as(self, event_id: str, limit: int) -> list[TracedPublication]:
        """Published events of this id."""
        rows = self._connection.execute(traces.PUBLISHED_AS, (event_id, limit)).fetchall()
        return [traces.published_of(row) for row in rows]
