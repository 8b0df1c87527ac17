"""A PostgreSQL ledger with very many rows, written by the server itself: for plans and for times of pages.

Beside what a `Scene` has played: entries of its surfaces over the last weeks, of which one in two hundred
waits for a person, with payloads, outcomes and log records; counters of eight days; repeats; lanes, some of
them blocked; a feed. The rows are as the gate writes them, only faster.
"""

from __future__ import annotations

from typing import Final

import psycopg

from oncegate.clock import SystemClock

BATCHES: Final = 50  # each its own transaction, as the log goes by these

_ENTRIES: Final = """
WITH made AS MATERIALIZED (
    SELECT nextval('oncegate_number') AS id, n, %(now)s - n * 2000::bigint AS at,
           (%(surfaces)s::int[])[1 + n %% 4] AS surface, (%(tenants)s::int[])[1 + n %% 3] AS tenant,
           CASE WHEN n %% 200 = 0 THEN (ARRAY[5, 6, 7, 7])[1 + (n / 200) %% 4]
                WHEN n %% 10001 = 0 THEN 1 WHEN n %% 997 = 0 THEN 3 ELSE 2 END AS state
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
),
entry AS (
    INSERT INTO oncegate_entry (id, fence, received_at, settled_at, surface, tenant, attempt, state, key,
                                fingerprint, label, reason)
    SELECT id, nextval('oncegate_number'), at, CASE WHEN state <> 1 THEN at + 40 END, surface, tenant, 1,
           state, substring(sha256(n::text::bytea) FOR 24), substring(sha256(n::text::bytea) FOR 16),
           'N-' || n,
           CASE state WHEN 7 THEN 'skew: 2 h' WHEN 6 THEN 'approval' WHEN 5 THEN 'no answer' END
    FROM made
),
open AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved)
    SELECT id, state, 1000, 1000 FROM made WHERE state NOT IN (2, 3)
),
payload AS (
    INSERT INTO oncegate_payload (month, entry, body)
    SELECT oncegate_month(at), id, convert_to('{"id":"N-' || n || '","terminal":"Delta"}', 'UTF8') FROM made
),
outcome AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT oncegate_month(at), id, '{"value":{"slot":"S"}}'::bytea FROM made WHERE state = 2
),
repeat AS (
    INSERT INTO oncegate_repeat (entry, class, first_at, last_at, times, evidence)
    SELECT id, CASE WHEN n %% 1000 = 0 THEN 5 ELSE 1 END, at, at + 1000, 2, 'again' FROM made
    WHERE n %% 40 = 0
)
INSERT INTO oncegate_log (entry, kind, at, actor, note)
SELECT id, CASE WHEN n %% 300 = 0 THEN 13 ELSE 2 END, at + 40, surface, NULL FROM made
"""
_TALLIES: Final = """
INSERT INTO oncegate_tally (minute, surface, what, count, total)
SELECT %(now)s / 60000 - minute, surface, what, 5, 500
FROM generate_series(1, %(minutes)s) AS minute, generate_series(1, 8) AS what,
     unnest(%(surfaces)s::int[]) AS surface
ON CONFLICT DO NOTHING
"""
_LANES: Final = """
WITH lane AS (
    INSERT INTO oncegate_lane (last_seq, destination, tenant, idle, key)
    SELECT 10, %(orders)s, %(acme)s, CASE WHEN n %% 50 = 0 THEN 0 ELSE 1 END, 'L-' || n
    FROM generate_series(1, %(lanes)s) AS n
    RETURNING id, destination, substring(key FROM 3)::bigint AS n
),
head AS (
    INSERT INTO oncegate_head (lane, seq, fence, destination, attempt, state, error)
    SELECT id, CASE WHEN n %% 50 = 0 THEN 6 ELSE 11 END, 1, destination, 3,
           CASE WHEN n %% 50 = 0 THEN 4 ELSE 1 END, CASE WHEN n %% 50 = 0 THEN 'HTTP 500' END
    FROM lane
),
dead AS (
    INSERT INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error)
    SELECT id, 6, %(now)s - 60000, 1, 3, 'HTTP 500' FROM lane WHERE n %% 50 = 0
),
ack AS (
    INSERT INTO oncegate_ack (lane, seq, at, fence, attempts, note)
    SELECT id, seq, %(now)s - 50000, 1, 1, '200'
    FROM lane, generate_series(1, CASE WHEN n %% 50 = 0 THEN 5 ELSE 10 END) AS seq
)
INSERT INTO oncegate_delivery
    (lane, seq, created_at, destination, type, event, fingerprint, context, payload)
SELECT id, seq, %(now)s - 100000, destination, destination, id || '-' || seq, 'f', '{}', '{}'
FROM lane, generate_series(1, 10) AS seq
"""
_FEED: Final = """
INSERT INTO oncegate_feed (position, seq, at, tenant, event_id, key, fingerprint, body)
SELECT 1000 + n, 1000 + n, %(now)s, %(acme)s, 'f-' || n, 'W1', 'f', '{}'
FROM generate_series(1, %(events)s) AS n
"""
# Each delivery of a tenth of the lanes goes once more, and very many replays are over.
_REPLAYS: Final = """
WITH past AS (
    INSERT INTO oncegate_replay_order
        (nonce, destination, tenant, lane, seq_from, only_dead, at, deliveries, lanes, actor, reason)
    SELECT 1000000 + lane.id, destination, tenant, lane.id, 1, false, %(now)s - 1000, 10, 1, 'Bob', 'lost'
    FROM oncegate_lane AS lane WHERE key LIKE 'L-%%'
)
INSERT INTO oncegate_replay (lane, seq, nonce)
SELECT lane.id, seq, 1000000 + lane.id - lane.id %% 50
FROM oncegate_lane AS lane, generate_series(1, 10) AS seq WHERE key LIKE 'L-%%0'
"""


def fill(url: str, entries: int, minutes: int = 8 * 1440) -> None:
    """Writes so many entries and what belongs to them, and tells the server to look at its tables."""
    size = max(1, entries // BATCHES)
    with psycopg.connect(url, autocommit=True) as connection:
        names: dict[str, int] = dict(connection.execute("SELECT text, id FROM oncegate_name").fetchall())
        given = {
            "now": SystemClock().wall_ms(),
            "surfaces": [names[one] for one in ("portbase.cis", "payouts", "gate.in", "routes")],
            "tenants": [names[one] for one in ("", "acme", "globex")],
            "orders": names["orders"],
            "acme": names["acme"],
            "minutes": minutes,
            "lanes": max(1, entries // 50),
            "events": max(1, entries // 10),
        }
        for first in range(1, entries + 1, size):
            bounds = {"first": first, "last": min(entries, first + size - 1)}
            connection.execute(_ENTRIES, given | bounds)
        for sql in (_TALLIES, _LANES, _FEED, _REPLAYS):
            connection.execute(sql, given)
        connection.execute("VACUUM ANALYZE")
