"""An embedded ledger with 12,345 of everything that a page counts, written past the gate."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from oncegate.clock import SystemClock
from oncegate.stores.sqlite.open_entries import list_lasting

MANY: Final = 12_345
SHOWN: Final = "12\N{NARROW NO-BREAK SPACE}345"
NEAR: Final = "12\N{NARROW NO-BREAK SPACE}34[5-9]"  # a few were there before
_NUMBERS: Final = (
    f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY})"
)
_STATEMENTS: Final = (
    # Held payouts: as many as wait for a person.
    f"""{_NUMBERS}
    INSERT INTO oncegate_entry (id, key, surface, tenant, state, attempt, fence, fingerprint, label,
                                received_at, settled_at, record, lease_until, first_reserved, reason)
    SELECT :last + n, randomblob(24), :payouts, :acme, 6, 1, :last + n, randomblob(16), 'N-' || n,
           :now - 60000, :now - 60000, :position + n, 1000, 1000, 'approval' FROM numbers""",
    """INSERT INTO oncegate_log (position, entry, kind, at, actor)
    SELECT record, id, 6, received_at, surface FROM oncegate_entry WHERE id > :last""",
    # Arrivals of a minute ago, of each kind, at one surface.
    """WITH RECURSIVE kinds (w) AS (SELECT 1 UNION ALL SELECT w + 1 FROM kinds WHERE w < 12)
    INSERT OR REPLACE INTO oncegate_tally (minute, surface, what, count, total)
    SELECT :now / 60000 - 2, :cis, w, :many, 0 FROM kinds""",
    "INSERT OR REPLACE INTO oncegate_tally VALUES (:now / 60000 - 2, :cis, 51, :many, 0)",
    # Keys that are blocked, each with one event.
    f"""{_NUMBERS}
    INSERT INTO oncegate_lane
        (destination, tenant, last_seq, seq, state, fence, attempt, touched_at, key, error)
    SELECT :orders, :acme, 1, 1, 4, 1, 3, 1000, 'L-' || n, 'HTTP 500' FROM numbers""",
    """INSERT INTO oncegate_delivery
        (lane, seq, destination, type, created_at, fingerprint, event, context, payload)
    SELECT id, 1, destination, destination, :now - 100000, x'66', 'many-' || id, x'', x'7b7d'
    FROM oncegate_lane WHERE key LIKE 'L-%'""",
    """INSERT INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error)
    SELECT id, 1, :now - 60000, 1, 3, 'HTTP 500' FROM oncegate_lane WHERE key LIKE 'L-%'""",
    # A reader that is behind by as many events; three were there.
    f"""{_NUMBERS}
    INSERT INTO oncegate_feed (position, seq, at, tenant, event_id, key, fingerprint, body)
    SELECT 3 + n, 3 + n, :now, :acme, 'f-' || n, 'W1', x'66', x'7b7d' FROM numbers WHERE n <= :many - 2""",
    "UPDATE oncegate_feed_tenant SET last = :many + 1 WHERE tenant = :acme",
)  # fmt: skip


def fill_thousands(path: Path) -> None:
    """Adds 12,345 of everything to a ledger that has played its incident."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        names = dict(connection.execute("SELECT text, id FROM oncegate_name").fetchall())
        ((last, position),) = connection.execute(
            "SELECT (SELECT max(id) FROM oncegate_entry), (SELECT max(position) FROM oncegate_log)"
        ).fetchall()
        given = {
            "now": SystemClock().wall_ms(), "many": MANY, "last": last, "position": position,
            "payouts": names["payouts"], "cis": names["portbase.cis"], "acme": names["acme"],
            "orders": names["orders"],
        }  # fmt: skip
        connection.execute("BEGIN")
        for sql in _STATEMENTS:
            connection.execute(sql, {name: given[name] for name in given if f":{name}" in sql})
        list_lasting(connection, last + MANY + 1)
        connection.execute("COMMIT")
    finally:
        connection.close()
