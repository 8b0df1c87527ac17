"""The statements that insert new keys: reservations, and keys that are recorded as settled at once.

Batches come as arrays. Each statement is atomic in itself, and the insert decides which keys are new.
"""

from __future__ import annotations

from typing import Final

from oncegate.stores.postgres.statements import NOW_IS

# A known key is not tried: the insert would wait for whoever changes its entry just now, such as a user's
# own transaction, and with it all that is reserved in the same batch. It is the insert that decides.
IS_NEW: Final = "(SELECT id FROM oncegate_entry AS known WHERE known.key = wanted.key) IS NULL"

# A key that is not run at once has never been reserved by anybody: -1 until the first claim on it.
RESERVE: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT nextval('oncegate_number') AS number, batch.*
    FROM unnest(%s::bytea[], %s::int[], %s::int[], %s::bytea[], %s::text[], %s::bigint[], %s::bigint[],
                %s::bigint[], %s::bytea[], %s::int[], %s::int[], %s::int[], %s::text[])
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
    FROM wanted WHERE {IS_NEW} ORDER BY place
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
SELECT place::int, number, now FROM wanted JOIN fresh ON id = number, clock
"""

# The same where events carry marks of their content.
RESERVE_MARKED: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT nextval('oncegate_number') AS number, batch.*
    FROM unnest(%s::bytea[], %s::int[], %s::int[], %s::bytea[], %s::text[], %s::bigint[], %s::bigint[],
                %s::bigint[], %s::bytea[], %s::int[], %s::int[], %s::int[], %s::text[], %s::bytea[], \
%s::text[], %s::text[])
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
    FROM wanted WHERE {IS_NEW} ORDER BY place
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
SELECT place::int, number, now FROM wanted JOIN fresh ON id = number, clock
"""

# The same for one arrival that is run at once and carries no marks: a third of the work, if it is alone.
RESERVE_ONE: Final = f"""
WITH {NOW_IS},
fresh AS (
    INSERT INTO oncegate_entry
        (id, fence, received_at, surface, tenant, attempt, state, key, fingerprint, label, token)
    SELECT number, number, %s::bigint, %s::int, %s::int, 1, 1, key, %s::bytea, %s::text, %s::bigint
    FROM nextval('oncegate_number') AS number, (SELECT %s::bytea AS key) AS wanted
    WHERE {IS_NEW}
    ON CONFLICT (key) DO NOTHING
    RETURNING id, received_at
),
opened AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved, declared)
    SELECT id, 1, now + %s::bigint, now, %s::int FROM fresh, clock
),
stored AS (
    INSERT INTO oncegate_payload (month, entry, body)
    SELECT oncegate_month(received_at), id, %s::bytea FROM fresh
)
SELECT id, now FROM fresh, clock
"""

# A key that waits for a person, quarantined or held, is left as a reservation leaves it.
RECORD: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT nextval('oncegate_number') AS number, oncegate_month(batch.received_at) AS month, batch.*
    FROM unnest(%s::bytea[], %s::int[], %s::int[], %s::bytea[], %s::text[], %s::bigint[], %s::bytea[],
                %s::int[], %s::int[], %s::bigint[], %s::text[])
         WITH ORDINALITY
         AS batch (key, surface, tenant, fingerprint, label, received_at, body,
                   actor, state, token, reason, place)
),
fresh AS (
    INSERT INTO oncegate_entry
        (id, fence, received_at, settled_at, surface, tenant, attempt, state, key, fingerprint, label,
         reason, token)
    SELECT number, number, received_at, received_at, surface, tenant, (state = 2)::int, state, key,
           fingerprint, label, reason, CASE WHEN state = 2 THEN token END
    FROM wanted ORDER BY place
    ON CONFLICT (key) DO NOTHING
    RETURNING id, key
),
whole AS MATERIALIZED (SELECT wanted.* FROM wanted JOIN fresh ON id = number),
waiting AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved)
    SELECT number, state, now, -1 FROM whole, clock WHERE state <> 2
),
stored AS (
    INSERT INTO oncegate_payload (month, entry, body) SELECT month, number, body FROM whole
),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT month, number, %s::bytea FROM whole WHERE state = 2
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT number, state, received_at, actor, reason FROM whole
)
SELECT key, id, now FROM fresh, clock
"""

# The same where events carry marks of their content.
RECORD_MARKED: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT nextval('oncegate_number') AS number, oncegate_month(batch.received_at) AS month, batch.*
    FROM unnest(%s::bytea[], %s::int[], %s::int[], %s::bytea[], %s::text[], %s::bigint[], %s::bytea[],
                %s::int[], %s::int[], %s::bigint[], %s::text[], %s::bytea[], %s::text[], %s::text[])
         WITH ORDINALITY
         AS batch (key, surface, tenant, fingerprint, label, received_at, body,
                   actor, state, token, reason, mark, target, compensation, place)
),
fresh AS (
    INSERT INTO oncegate_entry
        (id, fence, received_at, settled_at, surface, tenant, attempt, state, key, fingerprint, label,
         reason, token)
    SELECT number, number, received_at, received_at, surface, tenant, (state = 2)::int, state, key,
           fingerprint, label, reason, CASE WHEN state = 2 THEN token END
    FROM wanted ORDER BY place
    ON CONFLICT (key) DO NOTHING
    RETURNING id, key
),
whole AS MATERIALIZED (SELECT wanted.* FROM wanted JOIN fresh ON id = number),
waiting AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved)
    SELECT number, state, now, -1 FROM whole, clock WHERE state <> 2
),
stored AS (
    INSERT INTO oncegate_payload (month, entry, body) SELECT month, number, body FROM whole
),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT month, number, %s::bytea FROM whole WHERE state = 2
),
marked AS (
    INSERT INTO oncegate_content (entry, hash, target, compensation)
    SELECT number, mark, target, compensation FROM wanted JOIN fresh ON id = number WHERE mark IS NOT NULL
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT number, state, received_at, actor, reason FROM whole
)
SELECT key, id, now FROM fresh, clock
"""

# The same for one key that waits for nobody and carries no marks: a quarter less work, if it is alone.
RECORD_ONE: Final = f"""
WITH {NOW_IS},
fresh AS (
    INSERT INTO oncegate_entry
        (id, fence, received_at, settled_at, surface, tenant, attempt, state, key, fingerprint, label,
         token)
    SELECT number, number, at, at, %s::int, %s::int, 1, 2, %s::bytea, %s::bytea, %s::text, %s::bigint
    FROM nextval('oncegate_number') AS number, (SELECT %s::bigint AS at) AS arrived
    ON CONFLICT (key) DO NOTHING
    RETURNING id, received_at
),
stored AS (
    INSERT INTO oncegate_payload (month, entry, body)
    SELECT oncegate_month(received_at), id, %s::bytea FROM fresh
),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT oncegate_month(received_at), id, %s::bytea FROM fresh
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor) SELECT id, 2, received_at, %s::int FROM fresh
)
SELECT id, now FROM fresh, clock
"""
