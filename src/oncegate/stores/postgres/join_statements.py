"""The ledger's statements as a user's own driver can send them: one item, plain parameters.

They say the same as those of `reserve_statements`, `settle_statements`, `statements` and `lane_statements`.
Each also makes sure that it runs on the ledger's own database and changes nothing elsewhere: entries of two
ledgers may have the same numbers.
"""

from __future__ import annotations

from typing import Final

from oncegate.stores.postgres.statements import NOW_IS

# What is answered for must be durable, whatever the user's connection is set to: until its commit it is.
_HERE: Final = (
    "here AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM oncegate_meta"
    " WHERE name = 'ledger_id' AND value = %s::text) AS same,"
    " CASE WHEN current_setting('synchronous_commit') = 'off'"
    " THEN set_config('synchronous_commit', 'on', true) END AS durable)"
)

SETTLE: Final = f"""
WITH {_HERE}, {NOW_IS},
wanted AS MATERIALIZED (
    SELECT * FROM unnest(ARRAY[%s::bigint], ARRAY[%s::bigint], ARRAY[%s::bigint], ARRAY[%s::int], \
ARRAY[%s::bigint], ARRAY[%s::int],
                         ARRAY[%s::text], ARRAY[%s::bytea], ARRAY[%s::bigint], ARRAY[%s::int], \
ARRAY[%s::bigint])
    WITH ORDINALITY
    AS batch (entry, fence, token, state, at, actor, reason, outcome, last_call, given_back, retry_in,
              place)
),
ended AS (
    UPDATE oncegate_entry AS target
    SET state = wanted.state, settled_at = wanted.at, reason = wanted.reason,
        attempt = target.attempt - wanted.given_back,
        token = CASE WHEN wanted.state IN (2, 3) THEN target.token END
    FROM wanted
    WHERE target.id = wanted.entry AND target.fence = wanted.fence AND target.token = wanted.token
      AND target.state = 1 AND (SELECT same FROM here)
    RETURNING target.id, target.received_at, wanted.state, wanted.at, wanted.actor, wanted.reason,
              wanted.outcome, wanted.last_call, wanted.retry_in, wanted.place
),
closed AS (
    DELETE FROM oncegate_open WHERE entry = ANY (ARRAY(SELECT id FROM ended WHERE state IN (2, 3)))
),
waiting AS (
    UPDATE oncegate_open
    SET state = ended.state, lease_until = coalesce(ended.last_call, now), retry_at = now + ended.retry_in
    FROM ended, clock
    WHERE entry = ended.id AND entry = ANY (ARRAY(SELECT id FROM ended WHERE state NOT IN (2, 3)))
),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT oncegate_month(received_at), id, outcome FROM ended WHERE outcome IS NOT NULL
    ON CONFLICT (month, entry) DO UPDATE SET body = excluded.body
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, state, at, actor, reason FROM ended ORDER BY place
)
SELECT same, EXISTS (SELECT 1 FROM ended), pg_current_xact_id()::text FROM here
"""

# An end for good: a third of the work of `SETTLE`, which can do every other too.
END: Final = f"""
WITH {_HERE}, ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1 AND (SELECT same \
FROM here)
    RETURNING id, received_at, state, settled_at, reason
),
closed AS (DELETE FROM oncegate_open WHERE entry = (SELECT id FROM ended)),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT oncegate_month(received_at), id, %s::bytea FROM ended
    ON CONFLICT (month, entry) DO UPDATE SET body = excluded.body
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, state, settled_at, %s::int, reason FROM ended
)
SELECT same, EXISTS (SELECT 1 FROM ended), pg_current_xact_id()::text FROM here
"""

# An entry's first claim has no outcome in its way, and a plain insert is quicker.
END_FIRST: Final = f"""
WITH {_HERE}, ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1 AND (SELECT same \
FROM here)
    RETURNING id, received_at, state, settled_at, reason
),
closed AS (DELETE FROM oncegate_open WHERE entry = (SELECT id FROM ended)),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT oncegate_month(received_at), id, %s::bytea FROM ended
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, state, settled_at, %s::int, reason FROM ended
)
SELECT same, EXISTS (SELECT 1 FROM ended), pg_current_xact_id()::text FROM here
"""

# One whose outcome comes later, if at all.
END_BARE: Final = f"""
WITH {_HERE}, ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1 AND (SELECT same \
FROM here)
    RETURNING id, received_at, state, settled_at, reason
),
closed AS (DELETE FROM oncegate_open WHERE entry = (SELECT id FROM ended)),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, state, settled_at, %s::int, reason FROM ended
)
SELECT same, EXISTS (SELECT 1 FROM ended), pg_current_xact_id()::text FROM here
"""

RESERVE: Final = f"""
WITH {_HERE}, {NOW_IS},
wanted AS MATERIALIZED (
    SELECT nextval('oncegate_number') AS number, batch.*
    FROM unnest(ARRAY[%s::bytea], ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::bytea], ARRAY[%s::text], \
ARRAY[%s::bigint], ARRAY[%s::bigint],
                ARRAY[%s::bigint], ARRAY[%s::bytea], ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::int], \
ARRAY[%s::text])
         WITH ORDINALITY
         AS batch (key, surface, tenant, fingerprint, label, received_at, lease_ms, token, body,
                   declared, actor, state, reason, place)
),
fresh AS (
    INSERT INTO oncegate_entry
        (id, fence, received_at, settled_at, surface, tenant, attempt, state, key, fingerprint, label,
         reason, token)
    SELECT number, number, received_at, CASE WHEN state <> 1 THEN received_at END,
           surface, tenant, (state = 1)::int, state, key, fingerprint, label, reason,
           CASE WHEN state = 1 THEN token END
    FROM wanted WHERE (SELECT same FROM here) ORDER BY place
    ON CONFLICT (key) DO NOTHING
    RETURNING id
),
opened AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved, declared)
    SELECT number, state, now + CASE WHEN state = 1 THEN lease_ms ELSE 0 END,
           CASE WHEN state = 1 THEN now ELSE -1 END, declared
    FROM wanted JOIN fresh ON id = number, clock
),
stored AS (
    INSERT INTO oncegate_payload (month, entry, body)
    SELECT oncegate_month(received_at), number, body FROM wanted JOIN fresh ON id = number
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT number, state, received_at, actor, reason
    FROM wanted JOIN fresh ON id = number WHERE state <> 1
)
SELECT same, (SELECT id FROM fresh), now FROM here, clock
"""

# The same where the event carries marks of its content.
RESERVE_MARKED: Final = f"""
WITH {_HERE}, {NOW_IS},
wanted AS MATERIALIZED (
    SELECT nextval('oncegate_number') AS number, batch.*
    FROM unnest(ARRAY[%s::bytea], ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::bytea], ARRAY[%s::text], \
ARRAY[%s::bigint], ARRAY[%s::bigint],
                ARRAY[%s::bigint], ARRAY[%s::bytea], ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::int], \
ARRAY[%s::text], ARRAY[%s::bytea], ARRAY[%s::text], ARRAY[%s::text])
         WITH ORDINALITY
         AS batch (key, surface, tenant, fingerprint, label, received_at, lease_ms, token, body,
                   declared, actor, state, reason, mark, target, compensation, place)
),
fresh AS (
    INSERT INTO oncegate_entry
        (id, fence, received_at, settled_at, surface, tenant, attempt, state, key, fingerprint, label,
         reason, token)
    SELECT number, number, received_at, CASE WHEN state <> 1 THEN received_at END,
           surface, tenant, (state = 1)::int, state, key, fingerprint, label, reason,
           CASE WHEN state = 1 THEN token END
    FROM wanted WHERE (SELECT same FROM here) ORDER BY place
    ON CONFLICT (key) DO NOTHING
    RETURNING id
),
opened AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved, declared)
    SELECT number, state, now + CASE WHEN state = 1 THEN lease_ms ELSE 0 END,
           CASE WHEN state = 1 THEN now ELSE -1 END, declared
    FROM wanted JOIN fresh ON id = number, clock
),
stored AS (
    INSERT INTO oncegate_payload (month, entry, body)
    SELECT oncegate_month(received_at), number, body FROM wanted JOIN fresh ON id = number
),
marked AS (
    INSERT INTO oncegate_content (entry, hash, target, compensation)
    SELECT number, mark, target, compensation FROM wanted JOIN fresh ON id = number WHERE mark IS NOT NULL
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT number, state, received_at, actor, reason
    FROM wanted JOIN fresh ON id = number WHERE state <> 1
)
SELECT same, (SELECT id FROM fresh), now FROM here, clock
"""

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
WHERE entry.key = ANY(ARRAY[%s::bytea])
"""

CLEAR_STEPS: Final = "DELETE FROM oncegate_step WHERE entry = ANY(ARRAY[%s::bigint])"

# An error would end the user's transaction: here a lost race is told, and put right by GIVE_BACK.
ENQUEUE: Final = f"""
WITH {_HERE}, {NOW_IS},
wanted AS MATERIALIZED (
    SELECT * FROM unnest(ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::text], ARRAY[%s::text], ARRAY[%s::int], \
ARRAY[%s::bigint], ARRAY[%s::bytea],
                         ARRAY[%s::bytea], ARRAY[%s::bytea])
    WITH ORDINALITY
    AS batch (destination, tenant, key, event, type, created_at, fingerprint, context, payload, place)
),
known AS MATERIALIZED (
    SELECT place, lane, seq, past.fingerprint = wanted.fingerprint AS same
    FROM wanted JOIN oncegate_delivery AS past
        ON past.destination = wanted.destination AND past.event = wanted.event
),
fresh AS MATERIALIZED (
    SELECT wanted.*, row_number() OVER (PARTITION BY destination, tenant, key ORDER BY place) AS nth
    FROM wanted WHERE (SELECT same FROM here) AND place NOT IN (SELECT place FROM known)
),
added AS MATERIALIZED (
    SELECT destination, tenant, key, count(*) AS amount FROM fresh GROUP BY destination, tenant, key
),
backlog AS MATERIALIZED (SELECT %s::bigint AS most),
longer AS (
    INSERT INTO oncegate_lane AS lane (destination, tenant, key, last_seq, idle)
    SELECT destination, tenant, key, amount, 2 FROM added ORDER BY destination, tenant, key
    ON CONFLICT (destination, tenant, key) DO UPDATE
    SET last_seq = lane.last_seq + excluded.last_seq, idle = CASE lane.idle WHEN 1 THEN 2 ELSE 0 END
    WHERE CASE WHEN lane.last_seq < (SELECT most FROM backlog) THEN true ELSE
        lane.last_seq < (SELECT most FROM backlog) - 1
            + (SELECT head.seq FROM oncegate_head AS head WHERE head.lane = lane.id) END
    RETURNING id, destination, tenant, key, last_seq, idle
),
sized AS MATERIALIZED (SELECT * FROM longer JOIN added USING (destination, tenant, key)),
woken AS (
    INSERT INTO oncegate_head (lane, seq, due_at, fence, destination, attempt, state)
    SELECT id, last_seq - amount + 1, now, 0, destination, 0, 2 FROM sized, clock WHERE idle = 2 ORDER BY id
    ON CONFLICT (lane) DO UPDATE SET state = 2, due_at = excluded.due_at WHERE oncegate_head.state = 1
),
stored AS (
    INSERT INTO oncegate_delivery
        (lane, seq, created_at, destination, type, event, fingerprint, context, payload)
    SELECT id, last_seq - amount + nth, created_at, destination, type, event, fingerprint, context, payload
    FROM fresh JOIN sized USING (destination, tenant, key) ORDER BY destination, event
    ON CONFLICT (destination, event) DO NOTHING
    RETURNING lane, seq, destination, event
)

SELECT here.same, place::int, lane, seq, CASE WHEN known.same THEN 1 ELSE 2 END, true FROM known, here
UNION ALL
SELECT here.same, place::int, id, last_seq - amount + nth, 0, EXISTS (SELECT 1 FROM stored)
FROM fresh JOIN sized USING (destination, tenant, key), here
UNION ALL
SELECT same, 0, 0, 0, 0, false FROM here WHERE NOT same
"""
