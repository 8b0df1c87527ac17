"""The statements that end claims. Each names the fence and token of its claim, and is atomic in itself."""

from __future__ import annotations

from typing import Final

from oncegate.stores.postgres.statements import NOW_IS

SETTLE: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[], %s::int[],
                         %s::text[], %s::bytea[], %s::bigint[], %s::int[], %s::bigint[])
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
      AND target.state = 1
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
SELECT place::int FROM ended
"""

# The same for one claim that ends for good with an outcome, as nearly all do.
END_ONE: Final = """
WITH ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1
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
SELECT 1 FROM ended
"""

# The same two; each divides by zero where the claim was lost, so that writes and COMMIT may follow unseen.
END_ONE_OR_FAIL: Final = """
WITH ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1
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
SELECT 1 / count(*) FROM ended
"""

SETTLE_ALL: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[], %s::int[],
                         %s::text[], %s::bytea[], %s::bigint[], %s::int[], %s::bigint[])
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
      AND target.state = 1
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
SELECT 1 / (count(*) = %s)::int FROM ended
"""

# The same two for first claims: these have no outcome in their way, and a plain insert is quicker.
END_FIRST_OR_FAIL: Final = """
WITH ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1
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
SELECT 1 / count(*) FROM ended
"""

SETTLE_ALL_FIRST: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[], %s::int[],
                         %s::text[], %s::bytea[], %s::bigint[], %s::int[], %s::bigint[])
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
      AND target.state = 1
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
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, state, at, actor, reason FROM ended ORDER BY place
)
SELECT 1 / (count(*) = %s)::int FROM ended
"""
