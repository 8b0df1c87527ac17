"""The statements of lanes on PostgreSQL. Batches come as arrays; each statement is atomic in itself.

Who locks what, so that there is no deadlock and no worker waits for a user's transaction: a transaction
that adds to a lane locks its row in `oncegate_lane`, and the row in `oncegate_head` only where the lane was
idle, when no worker has it. Workers lock rows of `oncegate_head`, in order of lanes, and those of
`oncegate_lane` only if they are free, to let a lane become idle. Where such a row is locked, a transaction
may be adding to the lane, and the worker looks again soon.
"""

from __future__ import annotations

from typing import Final

from oncegate.store import MAYBE_MORE_MS
from oncegate.stores.postgres.statements import NOW_IS

# The same right after an acknowledgement: most transactions that add to a lane are short.
SOON_MS: Final = 3

_CLOSED: Final = """EXISTS (SELECT 1 FROM oncegate_destination AS gate
    WHERE gate.id = {destination} AND (gate.state <> 1 OR gate.not_before > now))"""

# Known ids are answered from what is there. One that somebody else commits meanwhile makes the count wrong,
# and the statement fails as a whole; asked again, it sees that one too. What has no row in the answer found
# its lane full; heads are looked up only for lanes that are long enough for that.
ENQUEUE: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::int[], %s::int[], %s::text[], %s::text[], %s::int[], %s::bigint[], %s::bytea[],
                         %s::bytea[], %s::bytea[])
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
    FROM wanted WHERE place NOT IN (SELECT place FROM known)
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
SELECT place::int, lane, seq, CASE WHEN same THEN 1 ELSE 2 END, 1 FROM known
UNION ALL
SELECT place::int, id, last_seq - amount + nth, 0,
       1 / ((SELECT count(*) FROM stored) = (SELECT sum(amount) FROM sized))::int
FROM fresh JOIN sized USING (destination, tenant, key)
"""

# Gives back a seq that was just taken for an event that turned out to be known; nobody else has seen it.
GIVE_BACK: Final = """
WITH shorter AS (
    UPDATE oncegate_lane SET last_seq = last_seq - 1, idle = CASE idle WHEN 2 THEN 1 ELSE idle END
    WHERE id = %s RETURNING id, idle
)
UPDATE oncegate_head SET state = 1, due_at = NULL FROM shorter WHERE lane = shorter.id AND shorter.idle = 1
"""

# Which destinations have something due, and when the next thing is due otherwise. Only reads.
PEEK: Final = f"""
WITH {NOW_IS}
SELECT asked.id, now,
       coalesce(gate.state, 1) = 1 AND coalesce(gate.not_before, 0) <= now
           AND coalesce(first.due_at <= now, false),
       CASE WHEN coalesce(gate.state, 1) = 1 AND gate.not_before > now THEN gate.not_before END,
       later.due_at
FROM clock, unnest(%s::int[]) AS asked (id)
LEFT JOIN oncegate_destination AS gate ON gate.id = asked.id
LEFT JOIN LATERAL (
    SELECT min(due_at) AS due_at FROM oncegate_head WHERE destination = asked.id AND due_at IS NOT NULL
) AS first ON true
LEFT JOIN LATERAL (
    SELECT min(due_at) AS due_at FROM oncegate_head
    WHERE destination = asked.id AND due_at > (SELECT now FROM clock)
) AS later ON true
"""

# Goes ahead of workers' statements and holds for their transaction. To plan one costs the server several
# times what it then does for a few events, and for small batches it would plan every time anew, taking that
# for cheaper. Their kept plans are look-ups, for any number of rows.
BY_KEPT_PLAN: Final = "SELECT set_config('plan_cache_mode', 'force_generic_plan', true)"

# Replays and dead letters are asked for as values. As a join or EXISTS, all there are would be read, to
# compare a batch with them.
_DELIVERY: Final = """
       head.lane, head.fence, head.holder, lane.destination, lane.tenant, lane.key,
       coalesce(head.replay, head.seq), head.attempt + 1, head.event, head.type, head.payload, head.context,
       head.created_at, head.due_at,
       CASE WHEN head.replay IS NOT NULL THEN (
           SELECT again.nonce FROM oncegate_replay AS again
           WHERE again.lane = head.lane AND again.seq = head.replay
       ) END,
       CASE WHEN head.replay IS NULL AND (
           SELECT last.seq FROM oncegate_dead_letter AS last
           WHERE last.lane = head.lane AND last.seq = head.seq - 1
       ) IS NOT NULL THEN (
           SELECT max(dead.seq) - 1 FROM oncegate_dead_letter AS dead
           WHERE dead.lane = head.lane AND dead.seq < head.seq AND NOT EXISTS (
               SELECT 1 FROM oncegate_dead_letter AS earlier
               WHERE earlier.lane = dead.lane AND earlier.seq = dead.seq - 1)
       ) END"""
_NAMED: Final = """CROSS JOIN LATERAL (
    SELECT destination, tenant, key FROM oncegate_lane AS one WHERE one.id = head.lane LIMIT 1
) AS lane"""

# What is known by its key is looked up by it, row by row: laterally, or by an array of keys where it is
# changed. In a plain join it would be read as a whole, if the plan was made while there was little of it or
# the server guessed wrong. An event goes by lane and seq: by the lane alone, all its past would be read.
_BODY: Final = """LATERAL (
        SELECT lane, event, type, payload, context, created_at FROM oncegate_delivery AS one
        WHERE one.lane = {lane} AND one.seq = {seq} LIMIT 1
    ) AS body"""

# The time is a scalar here: joined, it would make the server sort everything that is due.
LEASE: Final = f"""
WITH {NOW_IS},
due AS MATERIALIZED (
    SELECT lane, coalesce(replay, seq) AS seq FROM oncegate_head
    WHERE destination = %s AND due_at <= (SELECT now FROM clock)
    ORDER BY due_at LIMIT %s FOR NO KEY UPDATE SKIP LOCKED
),
ready AS MATERIALIZED (
    SELECT body.* FROM due CROSS JOIN {_BODY.format(lane="due.lane", seq="due.seq")}
),
head AS (
    UPDATE oncegate_head AS target
    SET state = 3, fence = target.fence + 1, holder = %s, due_at = now + %s
    FROM clock, ready AS body
    WHERE target.lane = body.lane AND target.lane = ANY (ARRAY(SELECT lane FROM ready))
    RETURNING target.lane, target.fence, target.holder, target.replay, target.seq, target.attempt,
              target.due_at, body.event, body.type, body.payload, body.context, body.created_at
)
SELECT due.lane, {_DELIVERY}
FROM due LEFT JOIN (head {_NAMED}) ON head.lane = due.lane
"""

# The lanes of some rows that nobody else is adding to, locked in the order of those rows.
_FREE: Final = """CROSS JOIN LATERAL (
        SELECT id, last_seq FROM oncegate_lane AS one WHERE one.id = {lane}
        FOR NO KEY UPDATE OF one SKIP LOCKED
    ) AS lane"""

# Heads that are due and have no event (yet): the lane becomes idle unless somebody is adding to it.
SETTLE_EMPTY: Final = f"""
WITH {NOW_IS},
ours AS MATERIALIZED (
    SELECT lane, seq FROM oncegate_head
    WHERE lane = ANY(%s) AND state <> 1 AND replay IS NULL AND due_at <= (SELECT now FROM clock)
    ORDER BY lane FOR NO KEY UPDATE SKIP LOCKED
),
free AS MATERIALIZED (
    SELECT lane.* FROM ours {_FREE.format(lane="ours.lane")}
),
idled AS (
    UPDATE oncegate_lane AS target SET idle = 1 FROM free JOIN ours ON ours.lane = free.id
    WHERE target.id = free.id AND target.id = ANY (ARRAY(SELECT id FROM free))
        AND free.last_seq < ours.seq
)
UPDATE oncegate_head AS target
SET state = CASE WHEN free.last_seq < ours.seq THEN 1 ELSE 2 END, holder = NULL,
    due_at = CASE WHEN free.id IS NULL THEN now + {MAYBE_MORE_MS} WHEN free.last_seq < ours.seq THEN NULL
                  ELSE now END
FROM clock, ours LEFT JOIN free ON free.id = ours.lane
WHERE target.lane = ours.lane AND target.lane = ANY (ARRAY(SELECT lane FROM ours))
"""

# The heads that are still held under the fence and by the holder that are named, locked in the order of
# `wanted`: of lanes.
_HELD: Final = """CROSS JOIN LATERAL (
        SELECT * FROM oncegate_head AS one
        WHERE one.lane = wanted.lane AND one.fence = wanted.fence AND one.holder = wanted.holder
            AND one.state = 3
        FOR NO KEY UPDATE OF one
    ) AS target"""

# From `held` rows on: each lane moves on to what comes next. A lease that is still long is kept as it is,
# so that no index changes.
_ADVANCE: Final = f"""
step AS MATERIALIZED (
    SELECT held.*, seq + (replay IS NULL)::int AS next_seq,
           (SELECT min(again.seq) FROM oncegate_replay AS again
            WHERE again.lane = held.lane AND again.seq > coalesce(held.replay, 0)) AS next_replay,
           lease_ms > 0 AND NOT {_CLOSED.format(destination="held.destination")} AS may
    FROM held, clock
),
follow AS MATERIALIZED (
    SELECT step.*, body.lane IS NOT NULL AS present, body.event, body.type, body.payload, body.context,
           body.created_at,
           step.replay IS NOT NULL AND step.next_replay IS NULL AND (
               SELECT gone.seq FROM oncegate_dead_letter AS gone
               WHERE gone.lane = step.lane AND gone.seq = step.next_seq) IS NOT NULL AS dead
    FROM step LEFT JOIN {_BODY.format(lane="step.lane", seq="coalesce(step.next_replay, step.next_seq)")}
        ON true
),
free AS MATERIALIZED (
    SELECT lane.* FROM follow {_FREE.format(lane="follow.lane")} WHERE NOT present
),
idled AS (
    UPDATE oncegate_lane AS target SET idle = 1 FROM free JOIN follow ON follow.lane = free.id
    WHERE target.id = free.id AND target.id = ANY (ARRAY(SELECT id FROM free))
        AND free.last_seq < follow.next_seq
),
head AS (
    UPDATE oncegate_head AS target
    SET seq = next_seq, replay = next_replay, attempt = 0, error = NULL,
        fence = target.fence + (present AND NOT dead AND may)::int,
        holder = CASE WHEN present AND NOT dead AND may THEN follow.next_holder END,
        state = CASE WHEN present AND dead THEN 4 WHEN present AND may THEN 3 WHEN present THEN 2
                     WHEN free.last_seq < next_seq THEN 1 ELSE 2 END,
        due_at = CASE WHEN present AND dead THEN NULL
                      WHEN present AND may AND target.due_at - now >= lease_ms / 2 THEN target.due_at
                      WHEN present AND may THEN now + lease_ms
                      WHEN present THEN now
                      WHEN free.id IS NULL THEN now + {SOON_MS}
                      WHEN free.last_seq < next_seq THEN NULL
                      ELSE now END
    FROM clock, follow LEFT JOIN free ON free.id = follow.lane
    WHERE target.lane = follow.lane AND target.lane = ANY (ARRAY(SELECT lane FROM follow))
    RETURNING place, target.state, target.lane, target.fence, target.holder, target.replay, target.seq,
              target.attempt, target.due_at, follow.event, follow.type, follow.payload, follow.context,
              follow.created_at
)
SELECT head.place::int, head.state = 3, {_DELIVERY}
FROM head {_NAMED}
"""

# What is left of `held` rows that were replays, if any were.
_REPLAYED: Final = """past.lane = held.lane AND past.seq = held.replay
    AND past.lane = ANY (ARRAY(SELECT lane FROM held WHERE replay IS NOT NULL))
    AND past.seq = ANY (ARRAY(SELECT replay FROM held WHERE replay IS NOT NULL))"""

FINISH: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[],
                         %s::bigint[])
    WITH ORDINALITY AS batch (lane, fence, holder, at, note, lease_ms, next_holder, place) ORDER BY lane
),
held AS MATERIALIZED (
    SELECT wanted.*, target.seq, target.replay, target.attempt, target.destination FROM wanted {_HELD}
),
acked AS (
    INSERT INTO oncegate_ack (lane, seq, at, fence, attempts, note)
    SELECT lane, coalesce(replay, seq), at, fence, attempt + 1, note FROM held
    ON CONFLICT (lane, seq) DO UPDATE
    SET at = excluded.at, fence = excluded.fence, attempts = excluded.attempts, note = excluded.note
),
replayed AS (
    DELETE FROM oncegate_replay AS past USING held WHERE {_REPLAYED}
),
alive AS (
    DELETE FROM oncegate_dead_letter AS past USING held WHERE {_REPLAYED}
),
{_ADVANCE}
"""

# Moves one lane on that this transaction has locked already.
ADVANCE: Final = f"""
WITH {NOW_IS},
held AS MATERIALIZED (
    SELECT lane, seq, replay, destination, %s::bigint AS lease_ms, %s::bigint AS next_holder, 1 AS place
    FROM oncegate_head WHERE lane = %s
),
{_ADVANCE}
"""

FAIL: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::text[])
    WITH ORDINALITY AS batch (lane, fence, holder, retry_in_ms, counts, error, place) ORDER BY lane
),
held AS MATERIALIZED (
    SELECT wanted.*,
           (SELECT min(again.seq) FROM oncegate_replay AS again
            WHERE again.lane = target.lane AND target.replay IS NULL) AS begins
    FROM wanted {_HELD}
)
UPDATE oncegate_head AS target
SET state = 2, holder = NULL, error = coalesce(held.error, target.error),
    replay = coalesce(begins, target.replay),
    attempt = CASE WHEN begins IS NULL THEN target.attempt + counts ELSE 0 END,
    due_at = now + CASE WHEN begins IS NULL THEN retry_in_ms ELSE 0 END
FROM clock, held WHERE target.lane = held.lane AND target.lane = ANY (ARRAY(SELECT lane FROM held))
RETURNING place::int
"""

EXTEND: Final = f"""
WITH {NOW_IS},
wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    WITH ORDINALITY AS batch (lane, fence, holder, lease_ms, place) ORDER BY lane
),
held AS MATERIALIZED (
    SELECT wanted.* FROM wanted {_HELD}
)
UPDATE oncegate_head AS target SET due_at = now + held.lease_ms
FROM clock, held WHERE target.lane = held.lane AND target.lane = ANY (ARRAY(SELECT lane FROM held))
RETURNING place::int
"""

BY_HOLDER: Final = f"""
SELECT {_DELIVERY}
FROM (SELECT target.*, body.event, body.type, body.payload, body.context, body.created_at
      FROM oncegate_head AS target JOIN oncegate_delivery AS body
          ON body.lane = target.lane AND body.seq = coalesce(target.replay, target.seq)
      WHERE target.state <> 1 AND target.state = 3 AND target.holder = ANY(%s)) AS head
{_NAMED}
"""

ENDED: Final = """
SELECT EXISTS (SELECT 1 FROM oncegate_delivery WHERE lane = %s AND seq = %s AND event = %s) AND (
    EXISTS (SELECT 1 FROM oncegate_head WHERE lane = %s AND fence = %s AND state <> 3)
    OR EXISTS (SELECT 1 FROM oncegate_ack WHERE lane = %s AND seq = %s AND fence = %s)
    OR EXISTS (SELECT 1 FROM oncegate_dead_letter WHERE lane = %s AND seq = %s AND fence = %s))
"""

HEAD: Final = """
SELECT seq, replay, state, fence, attempt, due_at, holder FROM oncegate_head WHERE lane = %s
FOR NO KEY UPDATE
"""

DEAD: Final = """
INSERT INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (lane, seq) DO UPDATE
SET at = excluded.at, fence = excluded.fence, attempts = excluded.attempts, error = excluded.error
"""

BLOCK: Final = """
UPDATE oncegate_head SET state = 4, due_at = NULL, holder = NULL, attempt = %s, error = %s WHERE lane = %s
"""

DROP_REPLAY: Final = "DELETE FROM oncegate_replay WHERE lane = %s AND seq = %s"

THROTTLE: Final = f"""
WITH {NOW_IS}
INSERT INTO oncegate_destination AS gate (id, not_before) SELECT %s, now + %s FROM clock
ON CONFLICT (id) DO UPDATE SET not_before = greatest(gate.not_before, excluded.not_before)
"""
