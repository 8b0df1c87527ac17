"""An embedded ledger with very many rows, written past the gate: as `big_ledger` has them on PostgreSQL."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final

from oncegate.clock import SystemClock
from oncegate.stores.sqlite.open_entries import list_lasting

_NUMBERS: Final = (
    "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :entries)"
)
_ENTRIES: Final = f"""
{_NUMBERS},
made AS (
    SELECT :last + n AS id, n, :now - n * 2000 AS at,
           CASE n % 4 WHEN 0 THEN :s0 WHEN 1 THEN :s1 WHEN 2 THEN :s2 ELSE :s3 END AS surface,
           CASE n % 3 WHEN 0 THEN :t0 WHEN 1 THEN :t1 ELSE :t2 END AS tenant,
           CASE WHEN n % 200 = 0 THEN CASE (n / 200) % 4 WHEN 0 THEN 5 WHEN 1 THEN 6 ELSE 7 END
                WHEN n % 10001 = 0 THEN 1 WHEN n % 997 = 0 THEN 3 ELSE 2 END AS state
    FROM numbers
)
INSERT INTO oncegate_entry (id, key, surface, tenant, state, attempt, fence, fingerprint, label,
                            received_at, settled_at, record, lease_until, first_reserved, reason)
SELECT id, randomblob(24), surface, tenant, state, 1, id, randomblob(16), 'N-' || n, at,
       CASE WHEN state <> 1 THEN at + 40 END, :position + n, CASE WHEN state NOT IN (2, 3) THEN 1000 END,
       CASE WHEN state NOT IN (2, 3) THEN 1000 END,
       CASE state WHEN 7 THEN 'skew: 2 h' WHEN 6 THEN 'approval' WHEN 5 THEN 'no answer' END
FROM made
"""
_OTHERS: Final = (
    """
    INSERT INTO oncegate_payload (entry, body)
    SELECT id, CAST('{"id":"' || label || '","terminal":"Delta"}' AS BLOB)
    FROM oncegate_entry WHERE id > :last
    """,
    """
    INSERT INTO oncegate_outcome (entry, body)
    SELECT id, CAST('{"value":{"slot":"S"}}' AS BLOB) FROM oncegate_entry WHERE id > :last AND state = 2
    """,
    """
    INSERT INTO oncegate_log (position, entry, kind, at, actor)
    SELECT record, id, CASE WHEN (id - :last) % 300 = 0 THEN 13 ELSE 2 END, received_at + 40, surface
    FROM oncegate_entry WHERE id > :last
    """,
    """
    INSERT INTO oncegate_repeat (entry, class, first_at, last_at, times, evidence)
    SELECT id, CASE WHEN (id - :last) % 1000 = 0 THEN 5 ELSE 1 END, received_at, received_at + 1000, 2,
           'again'
    FROM oncegate_entry WHERE id > :last AND (id - :last) % 40 = 0
    """,
    """
    WITH RECURSIVE minutes (m) AS (SELECT 1 UNION ALL SELECT m + 1 FROM minutes WHERE m < :minutes),
         whats (w) AS (SELECT 1 UNION ALL SELECT w + 1 FROM whats WHERE w < 8)
    INSERT OR IGNORE INTO oncegate_tally (minute, surface, what, count, total)
    SELECT :now / 60000 - m, s.column1, w, 5, 500
    FROM minutes, whats, (VALUES (:s0), (:s1), (:s2), (:s3)) AS s
    """,
    """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :lanes)
    INSERT INTO oncegate_lane
        (destination, tenant, last_seq, seq, state, fence, attempt, touched_at, key, error)
    SELECT :orders, :t1, 10, CASE WHEN n % 50 = 0 THEN 6 ELSE 11 END,
           CASE WHEN n % 50 = 0 THEN 4 ELSE 1 END, 1, 3, 1000, 'L-' || n,
           CASE WHEN n % 50 = 0 THEN 'HTTP 500' END
    FROM numbers
    """,
    """
    WITH RECURSIVE seqs (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM seqs WHERE seq < 10)
    INSERT INTO oncegate_delivery
        (lane, seq, destination, type, created_at, fingerprint, event, context, payload)
    SELECT lane.id, seqs.seq, destination, destination, :now - 100000, x'66', lane.id || '-' || seqs.seq,
           x'7b7d', x'7b7d'
    FROM oncegate_lane AS lane, seqs WHERE lane.key LIKE 'L-%'
    """,
    """
    INSERT INTO oncegate_ack (delivery, at, fence, attempts, note)
    SELECT past.id, :now - 50000, 1, 1, '200' FROM oncegate_delivery AS past
    JOIN oncegate_lane AS lane ON lane.id = past.lane WHERE lane.key LIKE 'L-%' AND past.seq < lane.seq
    """,
    """
    INSERT INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error)
    SELECT id, 6, :now - 60000, 1, 3, 'HTTP 500' FROM oncegate_lane WHERE key LIKE 'L-%' AND state = 4
    """,
    """
    INSERT INTO oncegate_replay_order
        (nonce, destination, tenant, lane, seq_from, only_dead, at, deliveries, lanes, actor, reason)
    SELECT 1000000 + id, destination, tenant, id, 1, 0, :now - 1000, 10, 1, 'Bob', 'lost'
    FROM oncegate_lane WHERE key LIKE 'L-%'
    """,
    """
    WITH RECURSIVE seqs (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM seqs WHERE seq < 10)
    INSERT INTO oncegate_replay (lane, seq, nonce)
    SELECT lane.id, seqs.seq, 1000000 + lane.id - lane.id % 50
    FROM oncegate_lane AS lane, seqs WHERE lane.key LIKE 'L-%0'
    """,
    """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :events)
    INSERT INTO oncegate_feed (position, seq, at, tenant, event_id, key, fingerprint, body)
    SELECT 1000 + n, 1000 + n, :now, :t1, 'f-' || n, 'W1', x'66', x'7b7d' FROM numbers
    """,
)


def fill_file(path: Path, entries: int, minutes: int = 8 * 1440) -> None:
    """Writes so many entries and what belongs to them."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        given = _given(connection, entries, minutes)
        connection.execute("BEGIN")
        for sql in (_ENTRIES, *_OTHERS):
            connection.execute(sql, {name: given[name] for name in given if f":{name}" in sql})
        list_lasting(connection, given["last"] + entries + 1)
        connection.execute("COMMIT")
    finally:
        connection.close()


def _given(connection: sqlite3.Connection, entries: int, minutes: int) -> dict[str, Any]:
    names: dict[str, int] = dict(connection.execute("SELECT text, id FROM oncegate_name").fetchall())
    surfaces, tenants = ("portbase.cis", "payouts", "gate.in", "routes"), ("", "acme", "globex")
    ((last, position),) = connection.execute(
        "SELECT (SELECT max(id) FROM oncegate_entry), (SELECT max(position) FROM oncegate_log)"
    ).fetchall()
    return {
        "now": SystemClock().wall_ms(),
        **{f"s{place}": names[name] for place, name in enumerate(surfaces)},
        **{f"t{place}": names[name] for place, name in enumerate(tenants)},
        "orders": names["orders"],
        "entries": entries,
        "minutes": minutes,
        "lanes": max(1, entries // 50),
        "events": max(1, entries // 10),
        "last": last,
        "position": position,
    }
