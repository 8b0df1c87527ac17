"""Whether the scan for equal contents can go on: for `oncegate doctor`. Reads only.

The scan looks at no mark that a transaction older than it may still precede. Such a transaction may be
any on the server, in any database: one that is left open holds the scan up, and says nothing.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from oncegate.store import Finding
from oncegate.stores.postgres import eras

WHAT: Final = "content scan"
LONG_SECONDS: Final = 60
COUNTED_MAX: Final = 1_000
_HELD_BACK: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM oncegate_content
    WHERE xact >= pg_snapshot_xmin(pg_current_snapshot()) AND entry > %s LIMIT %s
) AS held
"""
# Of other roles' sessions a role without pg_monitor sees the process only.
OLDEST_TRANSACTION: Final = """
SELECT what, seconds::int FROM (
    SELECT 'process ' || pid || ' (' || coalesce(application_name, '') || ', database '
           || coalesce(datname, '') || ')' AS what,
           age(backend_xid) AS age, extract(epoch FROM clock_timestamp() - xact_start) AS seconds
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL
    UNION ALL
    SELECT 'the prepared transaction ' || quote_literal(gid) || ' (database ' || database || ')',
           age(transaction), extract(epoch FROM clock_timestamp() - prepared)
    FROM pg_prepared_xacts
) AS running ORDER BY age DESC LIMIT 1
"""

Connection = psycopg.Connection[tuple[Any, ...]]


def examine_scan(connection: Connection) -> Finding | None:
    """Says which transaction the scan waits for; None where it waits for none that is old."""
    kept = eras.eras_of(connection.execute(eras.READ).fetchall())
    begin, _ = kept.marks(kept.last)
    (marks,) = connection.execute(_HELD_BACK, (begin, COUNTED_MAX)).fetchone() or (0,)
    if not marks:
        return None
    row = connection.execute(OLDEST_TRANSACTION).fetchone()
    if row is None:
        value = f"waits with {marks} marks for a transaction that this role may not see"
        return Finding(True, WHAT, value, "ask as a role with pg_monitor")
    what, seconds = row
    if seconds is not None and seconds < LONG_SECONDS:
        return None
    value = f"waits with {marks} marks for {what}, whose transaction is open for {seconds} s"
    return Finding(True, WHAT, value, "end that transaction; until then no later duplicate is found")
