"""The statements of the PostgreSQL ledger. Batches come as arrays; each statement is atomic in itself.

`now` is the ledger's own time, kept in a row of its own, unless a test passes another. Rows of
`oncegate_open` are named by their entries and never left to a join alone: an analysis in a quiet moment
finds that table empty, and a plan made then would read all of it, dead rows too, for every entry.

Under READ COMMITTED a conditional insert that finds a key waits for its open insert, and the row it
lost to is visible to the *next* statement only; that is why losers are read by a statement of their own.
"""

from __future__ import annotations

from typing import Final

from oncegate.model.conflicts import LOGGED_MAX

# What `oncegate_now()` says, written out: to call a function that reads a table costs as much as an insert.
# The one row is named, so that an index leads to it: connections that plan without sequential scans would
# else take every statement for one that costs 1e10, and a server with JIT compiles those.
TICKS: Final = (
    "(SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)"
)
NOW_IS: Final = f"clock AS MATERIALIZED (SELECT coalesce(%s::bigint, {TICKS}) AS now)"

# Some keys as one array. Inside a query of its own the planner cannot count them: else a plan for so few
# looks cheaper than one for any number, and each batch is planned anew, which takes longer than to run it.
SOME_KEYS: Final = "ANY ((SELECT %s::bytea[])::bytea[])"

NOW: Final = f"WITH {NOW_IS} SELECT now FROM clock"
SERVER_CLOCK: Final = "SELECT coalesce(%s::bigint, oncegate_clock())"

# Whoever works keeps the time, at most once a second; while one does so, others do not wait for it.
KEEP_TIME: Final = """
UPDATE oncegate_ticks AS kept
SET ticks = kept.ticks + least(greatest(due.now - kept.wall, 0), 20000), wall = due.now
FROM (
    SELECT one, oncegate_clock() AS now FROM oncegate_ticks
    WHERE one AND abs(oncegate_clock() - wall) >= 1000 FOR UPDATE SKIP LOCKED
) AS due
WHERE kept.one = due.one
"""
MAY_KEEP_TIME: Final = (
    "SELECT NOT pg_is_in_recovery() AND has_table_privilege('oncegate_ticks', 'SELECT, UPDATE')"
)

KNOWN: Final = f"""
WITH {NOW_IS}
SELECT entry.key, entry.id, entry.state, entry.fingerprint, entry.attempt, entry.fence,
       coalesce(open.lease_until, 0), entry.reason, coalesce(open.first_reserved, 0), entry.received_at,
       outcome.body, now, (SELECT text FROM oncegate_name WHERE oncegate_name.id = open.declared),
       coalesce(open.retry_at, 0), coalesce(open.interruptions, 0), coalesce(open.tried_from, 0)
FROM clock, oncegate_entry AS entry
LEFT JOIN LATERAL (SELECT * FROM oncegate_open WHERE oncegate_open.entry = id OFFSET 0) AS open ON true
LEFT JOIN oncegate_outcome AS outcome
       ON outcome.month = oncegate_month(entry.received_at) AND outcome.entry = entry.id
WHERE entry.key = {SOME_KEYS}
"""

# Nobody waits for an entry that somebody's open transaction holds: it is busy, whatever its lease says.
TAKE_OVER: Final = f"""
WITH {NOW_IS},
free AS MATERIALIZED (
    SELECT id FROM oncegate_entry WHERE id = %s AND fence = %s AND state = %s
    FOR NO KEY UPDATE SKIP LOCKED
),
taken AS (
    UPDATE oncegate_entry
    SET state = 1, attempt = attempt + 1, fence = nextval('oncegate_number'), settled_at = NULL,
        reason = NULL, token = %s
    WHERE id = (SELECT id FROM free)
    RETURNING id, attempt, fence
),
opened AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved, declared)
    SELECT id, 1, now + %s, now, %s::int FROM taken, clock
    ON CONFLICT (entry) DO UPDATE
    SET state = 1, lease_until = excluded.lease_until, retry_at = NULL,
        interruptions = CASE WHEN oncegate_open.state = 1
                             THEN coalesce(oncegate_open.interruptions, 0) + 1 END,
        declared = CASE WHEN oncegate_open.first_reserved < 0 THEN excluded.declared
                        ELSE oncegate_open.declared END,
        first_reserved = CASE WHEN oncegate_open.first_reserved < 0 THEN excluded.first_reserved
                              ELSE oncegate_open.first_reserved END
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, %s, %s, %s, %s || 'attempt ' || attempt || ' under fence ' || fence FROM taken
)
SELECT attempt, fence, now FROM taken, clock
UNION ALL
SELECT NULL, NULL, now FROM clock
WHERE NOT EXISTS (SELECT 1 FROM taken)
  AND EXISTS (SELECT 1 FROM oncegate_entry WHERE id = %s AND fence = %s AND state = %s)
"""

GIVE_UP: Final = """
WITH ended AS (
    UPDATE oncegate_entry SET state = 6, settled_at = %s, reason = %s, token = NULL
    WHERE id = %s AND fence = %s AND state IN (1, 4)
    RETURNING id
),
waiting AS (UPDATE oncegate_open SET state = 6 FROM ended WHERE entry = id)
INSERT INTO oncegate_log (entry, kind, at, actor, note) SELECT id, 6, %s, %s, %s FROM ended
RETURNING 1
"""

# Until the end of the transaction. The plan of a statement that settles is made while the ledger is small,
# and kept: it must find entries by their numbers all the same, not by reading the whole table. Users' own
# statements are planned as the server is set.
BY_NUMBER: Final = (
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),"
    " set_config('enable_mergejoin', 'off', true)"
)
AS_USUAL: Final = (
    "SELECT set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true),"
    " set_config('enable_mergejoin', 'on', true)"
)
# The same where only the connection's own setting is in the way: a third of the work.
AS_USUAL_HERE: Final = "SET LOCAL enable_seqscan = on"

# For events of one statement each that share a transaction: a deferred constraint is checked at the end of
# the statement, as it is where that is all of a transaction. Two events never make good for each other.
AT_ONCE: Final = "SET CONSTRAINTS ALL IMMEDIATE"

# Locks the entries first and in order, as settling does: taken the other way round, a renewal and the end
# of the same claims would wait for each other.
RENEW: Final = f"""
WITH {NOW_IS},
wanted AS (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    WITH ORDINALITY AS batch (entry, fence, token, lease_ms, place)
),
held AS MATERIALIZED (
    SELECT id, lease_ms, place FROM wanted JOIN oncegate_entry AS target
        ON target.id = wanted.entry AND target.fence = wanted.fence AND target.token = wanted.token
       AND target.state = 1
    ORDER BY id FOR NO KEY UPDATE OF target
)
UPDATE oncegate_open AS open SET lease_until = now + held.lease_ms
FROM clock, held WHERE open.entry = held.id AND open.entry = ANY (ARRAY(SELECT id FROM held))
RETURNING held.place::int
"""

HOLDS: Final = (
    "SELECT 1 FROM oncegate_entry WHERE id = %s AND fence = %s AND token = %s AND state = 1 FOR UPDATE"
)

STEP: Final = """
INSERT INTO oncegate_step
    (entry, name, state, downstream, result, resource, started_at, declared, last_call,
     first_call)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (entry, name) DO UPDATE
SET state = excluded.state, downstream = excluded.downstream, result = excluded.result,
    resource = excluded.resource, started_at = excluded.started_at, declared = excluded.declared,
    last_call = excluded.last_call, first_call = excluded.first_call
"""

# Until the end of the transaction; the number is the ledger's name in ASCII.
TAKE_TURN: Final = "SELECT pg_advisory_xact_lock(x'6F6E636567617465'::bigint)"

SERIALISE: Final = "SELECT pg_advisory_xact_lock(7229, hashtext(%s))"  # small numbers are taken: 1 and 2

LEDGER_ID: Final = "SELECT value FROM oncegate_meta WHERE name = 'ledger_id'"

STEPS_NAMED: Final = """
SELECT step.name, step.state, downstream.text, step.result, step.resource, step.started_at,
       (SELECT text FROM oncegate_name WHERE id = step.declared), step.last_call, step.first_call
FROM oncegate_step AS step
JOIN oncegate_name AS downstream ON downstream.id = step.downstream WHERE step.entry = %s ORDER BY step.name
"""

CLEAR_STEPS: Final = "DELETE FROM oncegate_step WHERE entry = ANY(%s)"

# A first claim has the number of its entry. What a claim has called is in its steps.
WITHDRAW: Final = """
WITH gone AS (
    DELETE FROM oncegate_entry AS entry
    WHERE id = %s AND fence = %s AND token = %s AND state = 1 AND fence = id
      AND NOT EXISTS (SELECT 1 FROM oncegate_step AS step WHERE step.entry = id)
    RETURNING id, received_at
),
closed AS (DELETE FROM oncegate_open WHERE entry = (SELECT id FROM gone)),
body AS (
    DELETE FROM oncegate_payload
    WHERE month = (SELECT oncegate_month(received_at) FROM gone) AND entry = (SELECT id FROM gone)
),
trace AS (DELETE FROM oncegate_trace WHERE entry = (SELECT id FROM gone)),
content AS (DELETE FROM oncegate_content WHERE entry = (SELECT id FROM gone)),
repeat AS (DELETE FROM oncegate_repeat WHERE entry = (SELECT id FROM gone))
SELECT 1 FROM gone
"""

ATTACH: Final = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[])
    WITH ORDINALITY AS batch (entry, fence, token, outcome, place)
),
held AS MATERIALIZED (
    SELECT id, received_at, outcome, place FROM wanted JOIN oncegate_entry AS target
        ON target.id = wanted.entry AND target.fence = wanted.fence AND target.token = wanted.token
       AND target.state = 2
    WHERE target.id = ANY (ARRAY(SELECT entry FROM wanted))
),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT oncegate_month(received_at), id, outcome FROM held ORDER BY id
    ON CONFLICT (month, entry) DO NOTHING
    RETURNING entry
)
SELECT place::int FROM held JOIN kept ON kept.entry = held.id
"""

FATE: Final = "SELECT pg_xact_status(%s::text::xid8)"
COMMITTED: Final = (
    "SELECT id, fence, token FROM oncegate_entry"
    " WHERE state = 2 AND id = ANY ((SELECT %s::bigint[])::bigint[])"
)

LOG: Final = "INSERT INTO oncegate_log (entry, kind, at, actor, note) VALUES (%s, %s, %s, %s, %s)"
# The first so many of an entry or a lane; several sessions at once may write a few more.
LOG_CONFLICT: Final = f"""
INSERT INTO oncegate_log (entry, kind, at, actor, note)
SELECT wanted.entry, 8, wanted.at, wanted.actor, wanted.note
FROM (SELECT %s::bigint AS entry, %s::bigint AS at, %s::integer AS actor, %s::text AS note) AS wanted
WHERE {LOGGED_MAX} > (
    SELECT count(*) FROM (
        SELECT 1 FROM oncegate_log AS log WHERE log.entry = wanted.entry AND log.kind = 8 LIMIT {LOGGED_MAX}
    ) AS logged
)
"""

ENTRY: Final = """
SELECT entry.id, entry.key, entry.tenant, entry.surface, entry.label, entry.state, entry.attempt,
       entry.fence, entry.token, entry.fingerprint, entry.received_at, entry.settled_at,
       open.lease_until, entry.reason, open.retry_at
FROM oncegate_entry AS entry LEFT JOIN oncegate_open AS open ON open.entry = entry.id
"""
READ: Final = f"""
SELECT entry.id, entry.key, entry.tenant, entry.surface, entry.label, entry.state, entry.attempt,
       entry.fence, entry.token, entry.fingerprint, entry.received_at, entry.settled_at,
       open.lease_until, entry.reason, open.retry_at
FROM oncegate_entry AS entry LEFT JOIN LATERAL (SELECT * FROM oncegate_open WHERE oncegate_open.entry = id \
OFFSET 0) AS open ON true
WHERE entry.key = {SOME_KEYS}"""
# The same for what is not final, begun from the small table. OFFSET 0 keeps the planner from walking
# through all entries instead, which it does when it takes those that are open for many.
OPEN_ENTRY: Final = """
SELECT entry.id, entry.key, entry.tenant, entry.surface, entry.label, entry.state, entry.attempt,
       entry.fence, entry.token, entry.fingerprint, entry.received_at, entry.settled_at,
       open.lease_until, entry.reason, open.retry_at
FROM oncegate_open AS open CROSS JOIN LATERAL (SELECT * FROM oncegate_entry AS one WHERE one.id = \
open.entry OFFSET 0) AS entry
"""

# Ordered by the column itself: a bare `xact` would mean the converted one, and each call sort the log.
LOG_AFTER: Final = """
SELECT log.xact::text::numeric, position, entry, kind, at, actor, note FROM oncegate_log AS log
WHERE (log.xact, position) > (%s::text::xid8, %s) AND {within}
ORDER BY log.xact, log.position LIMIT %s
"""
MAY_NOT_COMMIT: Final = "log.xact < pg_snapshot_xmin(pg_current_snapshot())"

LOG_OF: Final = """
SELECT xact::text::numeric, position, entry, kind, at, actor, note FROM oncegate_log
WHERE entry = %s ORDER BY position
"""
