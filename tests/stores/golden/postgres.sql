BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY
-- ====

DELETE FROM oncegate_attempt AS old USING unnest(%s::bigint[], %s::bigint[]) AS noted (lane, seq)
WHERE old.lane = noted.lane AND old.seq = noted.seq AND old.fence <= (
    SELECT fence FROM oncegate_attempt AS kept WHERE kept.lane = noted.lane AND kept.seq = noted.seq
    ORDER BY fence DESC LIMIT 1 OFFSET 10)

-- ====
DELETE FROM oncegate_content WHERE entry = ANY(%s)
-- ====
DELETE FROM oncegate_dead_letter WHERE lane = %s AND seq = %s
-- ====
DELETE FROM oncegate_duplicate WHERE entry = ANY(%s)
-- ====
DELETE FROM oncegate_feed WHERE tenant = %s AND position <= %s RETURNING 1
-- ====

DELETE FROM oncegate_mutation WHERE number IN (
    SELECT number FROM oncegate_mutation WHERE at < %s ORDER BY number LIMIT %s FOR UPDATE SKIP LOCKED
) RETURNING 1

-- ====
DELETE FROM oncegate_name WHERE id = ANY(%s) AND unused_xact IS NOT NULL RETURNING id
-- ====

DELETE FROM oncegate_notice WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM oncegate_notice
    WHERE kind = %s AND (until <= %s OR posted < (
        SELECT posted FROM oncegate_notice WHERE kind = %s ORDER BY posted DESC LIMIT 1 OFFSET %s))
    LIMIT 100 FOR UPDATE SKIP LOCKED))

-- ====
DELETE FROM oncegate_outcome WHERE month = %s AND entry = ANY(%s)
-- ====
DELETE FROM oncegate_payload WHERE month = %s AND entry = %s RETURNING entry
-- ====
DELETE FROM oncegate_payload WHERE month = %s AND entry = ANY(%s)
-- ====
DELETE FROM oncegate_repeat WHERE entry = ANY(%s)
-- ====

DELETE FROM oncegate_replay WHERE lane = %s AND nonce = %s AND NOT (%s AND seq = %s) RETURNING seq

-- ====
DELETE FROM oncegate_replay WHERE lane = %s AND seq = %s
-- ====

DELETE FROM oncegate_replay_order AS replayed WHERE id <= %s
AND NOT EXISTS (SELECT 1 FROM oncegate_replay AS again WHERE again.nonce = replayed.nonce)

-- ====
DELETE FROM oncegate_second WHERE entry = ANY(%s)
-- ====

DELETE FROM oncegate_seen WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM oncegate_seen
    WHERE at NOT BETWEEN %s AND %s LIMIT 4000 FOR UPDATE SKIP LOCKED))

-- ====

DELETE FROM oncegate_seen WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM oncegate_seen
    WHERE surface = %s AND at < (SELECT at FROM oncegate_seen WHERE surface = %s ORDER BY at DESC LIMIT 1 OFFSET 19999) LIMIT 4000 FOR UPDATE SKIP LOCKED))

-- ====

DELETE FROM oncegate_seen_repeat WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM oncegate_seen_repeat
    WHERE at NOT BETWEEN %s AND %s LIMIT 4000 FOR UPDATE SKIP LOCKED))

-- ====

DELETE FROM oncegate_seen_repeat WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM oncegate_seen_repeat
    WHERE surface = %s AND at < (SELECT at FROM oncegate_seen_repeat WHERE surface = %s ORDER BY at DESC LIMIT 1 OFFSET 255) LIMIT 4000 FOR UPDATE SKIP LOCKED))

-- ====
DELETE FROM oncegate_step WHERE entry = %s RETURNING entry
-- ====
DELETE FROM oncegate_step WHERE entry = ANY(%s)
-- ====
DELETE FROM oncegate_step WHERE entry = ANY(ARRAY[%s::bigint])
-- ====

DELETE FROM oncegate_tally WHERE (minute, surface, what) IN (
    SELECT minute, surface, what FROM oncegate_tally WHERE minute < %s
    ORDER BY minute, surface, what LIMIT %s FOR UPDATE SKIP LOCKED
) RETURNING 1

-- ====

DELETE FROM oncegate_target WHERE about IN (
    SELECT about FROM oncegate_target WHERE until < %s ORDER BY about LIMIT %s FOR UPDATE SKIP LOCKED
) RETURNING 1

-- ====
DELETE FROM oncegate_trace WHERE entry = %s RETURNING entry
-- ====
DELETE FROM oncegate_trace WHERE entry = ANY(%s)
-- ====

DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table}
    WHERE {age} LIMIT {removed} FOR UPDATE SKIP LOCKED))

-- ====

INSERT INTO oncegate_attempt (lane, seq, fence, at, took, status, error) VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (lane, seq, fence) DO NOTHING

-- ====

INSERT INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (lane, seq) DO NOTHING

-- ====

INSERT INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (lane, seq) DO UPDATE
SET at = excluded.at, fence = excluded.fence, attempts = excluded.attempts, error = excluded.error

-- ====
INSERT INTO oncegate_destination (id) VALUES (%s) ON CONFLICT (id) DO NOTHING
-- ====

INSERT INTO oncegate_document AS known (kind, name, version, body, changed_at) VALUES (%s, %s, 1, %s, %s)
ON CONFLICT (kind, name) DO UPDATE
SET version = known.version + 1, body = excluded.body, changed_at = excluded.changed_at
WHERE known.body IS NULL
RETURNING version

-- ====

INSERT INTO oncegate_duplicate (entry, other, flagged_at, undecided) VALUES (%s, %s, %s, true)
ON CONFLICT (entry) DO NOTHING RETURNING 1

-- ====

INSERT INTO oncegate_entry
    (id, fence, received_at, surface, tenant, attempt, state, key, fingerprint, label, token)
SELECT number, number, %s::bigint, %s::int, %s::int, 1, 1, %s::bytea, %s::bytea, %s::text, %s::bigint
FROM nextval('oncegate_number') AS number
ON CONFLICT (key) DO NOTHING
RETURNING id, coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one))

-- ====

INSERT INTO oncegate_feed_key AS known (tenant, key, seq) VALUES (%s, %s, 0)
ON CONFLICT (tenant, key) DO UPDATE SET seq = known.seq RETURNING seq

-- ====

INSERT INTO oncegate_feed_reader AS reader (tenant, reader, position, at)
SELECT tenant, %s, %s, %s FROM oncegate_feed_tenant WHERE tenant = %s AND last >= %s
ON CONFLICT (tenant, reader) DO UPDATE SET position = excluded.position, at = excluded.at
WHERE excluded.position > reader.position RETURNING position

-- ====

INSERT INTO oncegate_feed_tenant AS ends (tenant, last) VALUES (%s, 0)
ON CONFLICT (tenant) DO UPDATE SET last = ends.last RETURNING last

-- ====

INSERT INTO oncegate_log (entry, kind, at, actor, note)
SELECT wanted.entry, 8, wanted.at, wanted.actor, wanted.note
FROM (SELECT %s::bigint AS entry, %s::bigint AS at, %s::integer AS actor, %s::text AS note) AS wanted
WHERE 100 > (
    SELECT count(*) FROM (
        SELECT 1 FROM oncegate_log AS log WHERE log.entry = wanted.entry AND log.kind = 8 LIMIT 100
    ) AS logged
)

-- ====
INSERT INTO oncegate_log (entry, kind, at, actor, note) VALUES (%s, %s, %s, %s, %s)
-- ====

INSERT INTO oncegate_meta (name, value) VALUES ('eras', %s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- ====

INSERT INTO oncegate_meta (name, value) VALUES ('scanned', %s)
ON CONFLICT (name) DO UPDATE
SET value = greatest(oncegate_meta.value::numeric, excluded.value::numeric)::text

-- ====
INSERT INTO oncegate_meta (name, value) VALUES ('schema_version', '{number}') ON CONFLICT (name) DO UPDATE SET value = excluded.value;
-- ====
INSERT INTO oncegate_meta (name, value) VALUES ('sighting', '') ON CONFLICT (name) DO NOTHING
-- ====

INSERT INTO oncegate_mutation (entry, name, target, nth, before, after, done, at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)

-- ====

INSERT INTO oncegate_name AS name (text) SELECT unnest(%s::text[])
ON CONFLICT (text) DO UPDATE SET unused_since = NULL, unused_xact = NULL WHERE name.unused_since IS NOT NULL

-- ====

INSERT INTO oncegate_notice AS known (kind, name, writer, body, told_at, posted, until)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (kind, name, writer) DO UPDATE
SET body = excluded.body, told_at = excluded.told_at, posted = excluded.posted, until = excluded.until
WHERE NOT %s OR known.until <= excluded.posted
RETURNING 1

-- ====

INSERT INTO oncegate_repeat AS known (entry, class, first_at, last_at, times, evidence)
SELECT batch.entry, batch.class, batch.first_at, batch.last_at, batch.times, batch.evidence
FROM unnest(%s::bigint[], %s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[])
     AS batch (entry, class, first_at, last_at, times, evidence)
JOIN oncegate_entry AS target ON target.id = batch.entry
ORDER BY batch.entry, batch.class
ON CONFLICT (entry, class) DO UPDATE
SET first_at = least(known.first_at, excluded.first_at),
    last_at = greatest(known.last_at, excluded.last_at),
    times = known.times + excluded.times,
    evidence = CASE WHEN excluded.last_at >= known.last_at THEN excluded.evidence ELSE known.evidence END

-- ====
INSERT INTO oncegate_replay (lane, seq, nonce) SELECT %s, unnest(%s::bigint[]), %s::bigint
-- ====

INSERT INTO oncegate_replay_order (nonce, destination, tenant, lane, seq_from, seq_to, only_dead, at, actor,
                                   reason, deliveries, lanes, since, until, type)
VALUES (%s, %s, (SELECT tenant FROM oncegate_lane WHERE id = %s::bigint), %s::bigint, %s, %s::bigint, %s,
        %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (nonce) DO UPDATE SET deliveries = oncegate_replay_order.deliveries + excluded.deliveries,
                                  lanes = oncegate_replay_order.lanes + excluded.lanes
RETURNING id

-- ====

INSERT INTO oncegate_second (about, target, step, place, entry, resource, other, other_resource, found_at)
SELECT new.about, target, step, place, id, new.resource, other, new.other_resource, found_at
FROM oncegate_entry,
     (SELECT %s::bytea, %s::text, %s::text, %s::text, %s::text, %s::bigint, %s::text, %s::bigint)
     AS new (about, target, step, place, resource, other, other_resource, found_at)
WHERE id = %s AND NOT EXISTS (
    SELECT 1 FROM oncegate_second AS known
    WHERE (known.about, known.resource, known.other_resource)
        = (new.about, new.other_resource, new.resource)
)
ON CONFLICT (about, resource) DO NOTHING RETURNING 1

-- ====

INSERT INTO oncegate_seen_repeat (surface, at, entry, first_at, fresh)
SELECT * FROM unnest(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[])
    AS given (surface, at, entry, first_at, fresh) ORDER BY surface, at, entry
ON CONFLICT (surface, at, entry) DO NOTHING

-- ====

INSERT INTO oncegate_step
    (entry, name, state, downstream, result, resource, started_at, declared, last_call,
     first_call)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (entry, name) DO UPDATE
SET state = excluded.state, downstream = excluded.downstream, result = excluded.result,
    resource = excluded.resource, started_at = excluded.started_at, declared = excluded.declared,
    last_call = excluded.last_call, first_call = excluded.first_call

-- ====

INSERT INTO oncegate_tally AS tally (minute, surface, what, count, total)
SELECT minute, surface, what, count, total
FROM unnest(%s::bigint[], %s::int[], %s::int[], %s::bigint[], %s::bigint[])
     AS batch (minute, surface, what, count, total)
ORDER BY minute, surface, what
ON CONFLICT (minute, surface, what)
DO UPDATE SET count = tally.count + excluded.count, total = tally.total + excluded.total

-- ====

INSERT INTO oncegate_target AS known (about, entry, resource, until) VALUES (%s, %s, %s, %s)
ON CONFLICT (about) DO UPDATE SET
    before_entry = CASE WHEN known.resource <> excluded.resource THEN known.entry END,
    before_resource = known.resource, before_until = known.until,
    entry = excluded.entry, resource = excluded.resource, until = greatest(known.until, excluded.until)
RETURNING before_entry, before_resource, before_until

-- ====

INSERT INTO oncegate_trace (entry, trace, context)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bytea[]) ON CONFLICT DO NOTHING

-- ====
RELEASE SAVEPOINT race
-- ====
RESET ALL
-- ====
RESET lock_timeout
-- ====
SAVEPOINT race
-- ====
SELECT %s::bigint - (extract(epoch FROM clock_timestamp()) * 1000)::bigint
-- ====

SELECT 'USAGE', 'SEQUENCE oncegate_number', quote_ident(current_user)
WHERE NOT has_sequence_privilege('oncegate_number', 'USAGE')

-- ====

SELECT 'row', 'oncegate_ticks', '' FROM oncegate_ticks
UNION ALL
SELECT 'row', 'oncegate_meta', name FROM oncegate_meta WHERE name IN ('ledger_id', 'feed_secret')

-- ====

SELECT (SELECT coalesce(max(entry), 0) FROM oncegate_content),
       (SELECT coalesce(max(position), 0) FROM oncegate_log)

-- ====
SELECT 1
-- ====
SELECT 1 FROM oncegate_dead_letter WHERE lane = %s AND seq = %s
-- ====
SELECT 1 FROM oncegate_duplicate WHERE entry = %s AND other = %s AND undecided FOR UPDATE
-- ====
SELECT 1 FROM oncegate_entry WHERE id = %s AND fence = %s AND token = %s AND state = 1 FOR UPDATE
-- ====
SELECT 1 FROM oncegate_feed WHERE tenant = %s AND position IS NULL LIMIT 1
-- ====
SELECT 1 FROM oncegate_replay WHERE lane = %s LIMIT 1
-- ====
SELECT DISTINCT lane FROM oncegate_replay WHERE nonce = %s ORDER BY lane
-- ====
SELECT DISTINCT tenant FROM oncegate_feed WHERE position IS NULL AND at < %s ORDER BY tenant
-- ====

SELECT EXISTS (SELECT 1 FROM oncegate_delivery WHERE lane = %s AND seq = %s AND event = %s) AND (
    EXISTS (SELECT 1 FROM oncegate_head WHERE lane = %s AND fence = %s AND state <> 3)
    OR EXISTS (SELECT 1 FROM oncegate_ack WHERE lane = %s AND seq = %s AND fence = %s)
    OR EXISTS (SELECT 1 FROM oncegate_dead_letter WHERE lane = %s AND seq = %s AND fence = %s))

-- ====
SELECT INSERT
-- ====
SELECT INSERT DELETE
-- ====
SELECT INSERT UPDATE DELETE
-- ====
SELECT NOT pg_is_in_recovery() AND has_table_privilege('oncegate_ticks', 'SELECT, UPDATE')
-- ====
SELECT UPDATE
-- ====
SELECT cancelled_at IS NOT NULL FROM oncegate_replay_order WHERE nonce = %s FOR UPDATE
-- ====

SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = to_regclass(%s) ORDER BY child.relname

-- ====

SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)),
       (SELECT received_at FROM oncegate_entry ORDER BY id DESC LIMIT 1)

-- ====
SELECT coalesce(%s::bigint, oncegate_clock())
-- ====

SELECT coalesce(greatest(
    (SELECT xact FROM oncegate_log ORDER BY xact DESC LIMIT 1),
    (SELECT xact FROM oncegate_content ORDER BY xact DESC LIMIT 1)
) >= pg_snapshot_xmax(pg_current_snapshot()), false)

-- ====

SELECT coalesce(max(number), 0), pg_snapshot_xmin(pg_current_snapshot())::text FROM oncegate_mutation

-- ====

SELECT coalesce(name.text, ''), second.target = '', count(*),
       count(DISTINCT CASE WHEN second.target = '' THEN CAST(second.entry AS text)
                           ELSE second.target || ' at ' || second.place END),
       min(second.found_at)
FROM oncegate_second AS second
LEFT JOIN oncegate_entry AS later ON later.id = second.entry
LEFT JOIN oncegate_name AS name ON name.id = later.surface
WHERE second.dismissed_at IS NULL AND (second.target <> '' OR later.state NOT IN (1, 4))
GROUP BY 1, 2 ORDER BY 1, 2

-- ====

SELECT coalesce(position, 0), event_id, key, seq, body, at, context FROM oncegate_feed
WHERE tenant = %s AND event_id = %s

-- ====

SELECT coalesce(sum(lane.last_seq - head.seq + 1), 0)::bigint
FROM oncegate_head AS head CROSS JOIN LATERAL (SELECT * FROM oncegate_lane AS one WHERE one.id = head.lane OFFSET 0) AS lane
WHERE head.state <> 1 AND head.destination = %s

-- ====

SELECT concat_ws('/', '?', left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
                 (SELECT oid FROM pg_database WHERE datname = current_database()),
                 to_regclass('oncegate_entry')::oid,
                 (SELECT value FROM oncegate_meta WHERE name = 'ledger_id')),
       (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint

-- ====

SELECT concat_ws('/', '??',
                 (SELECT oid FROM pg_database WHERE datname = current_database()),
                 to_regclass('oncegate_entry')::oid,
                 (SELECT value FROM oncegate_meta WHERE name = 'ledger_id')),
       0::bigint

-- ====

SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()), left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
                 (SELECT oid FROM pg_database WHERE datname = current_database()),
                 to_regclass('oncegate_entry')::oid,
                 (SELECT value FROM oncegate_meta WHERE name = 'ledger_id')),
       (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint

-- ====

SELECT concat_ws('/', {server},
                 (SELECT oid FROM pg_database WHERE datname = current_database()),
                 to_regclass('oncegate_entry')::oid,
                 (SELECT value FROM oncegate_meta WHERE name = 'ledger_id')),
       {position}::bigint

-- ====

SELECT content.xact::text::numeric, content.entry, earlier.entry, later.state,
       abs(later.received_at - earlier.received_at)
FROM (
    SELECT xact, entry, hash FROM oncegate_content
    WHERE (xact, entry) > (%s::text::xid8, %s) {within}
    ORDER BY xact, entry LIMIT %s
) AS content
LEFT JOIN LATERAL (
    SELECT entry, received_at FROM (
        SELECT 1 AS rank, * FROM (
        SELECT equal.entry, before.received_at FROM oncegate_content AS equal
        JOIN oncegate_entry AS before ON before.id = equal.entry AND before.state <> 3
        WHERE equal.hash = content.hash AND (equal.xact, equal.entry) < (content.xact, content.entry) AND {this}
        ORDER BY equal.xact DESC, equal.entry DESC LIMIT 1
    ) AS same
        UNION ALL
        SELECT 2 AS rank, * FROM (
        SELECT equal.entry, before.received_at FROM oncegate_content AS equal
        JOIN oncegate_entry AS before ON before.id = equal.entry AND before.state <> 3
        WHERE equal.hash = content.hash AND equal.entry <= {begin}
        ORDER BY equal.entry DESC LIMIT 1
    ) AS others
    ) AS either ORDER BY rank LIMIT 1
    ) AS earlier ON true
LEFT JOIN oncegate_entry AS later ON later.id = content.entry
ORDER BY content.xact, content.entry

-- ====

SELECT content.xact::text::numeric, content.entry, earlier.entry, later.state,
       abs(later.received_at - earlier.received_at)
FROM (
    SELECT xact, entry, hash FROM oncegate_content
    WHERE (xact, entry) > (%s::text::xid8, %s) {within}
    ORDER BY xact, entry LIMIT %s
) AS content
LEFT JOIN LATERAL (
        SELECT equal.entry, before.received_at FROM oncegate_content AS equal
        JOIN oncegate_entry AS before ON before.id = equal.entry AND before.state <> 3
        WHERE equal.hash = content.hash AND (equal.xact, equal.entry) < (content.xact, content.entry)
        ORDER BY equal.xact DESC, equal.entry DESC LIMIT 1
    ) AS earlier ON true
LEFT JOIN oncegate_entry AS later ON later.id = content.entry
ORDER BY content.xact, content.entry

-- ====

SELECT content.xact::text::numeric, content.entry, earlier.entry, later.state,
       abs(later.received_at - earlier.received_at)
FROM (
    SELECT xact, entry, hash FROM oncegate_content
    WHERE (xact, entry) > (%s::text::xid8, %s) {{within}}
    ORDER BY xact, entry LIMIT %s
) AS content
LEFT JOIN LATERAL {earlier} AS earlier ON true
LEFT JOIN oncegate_entry AS later ON later.id = content.entry
ORDER BY content.xact, content.entry

-- ====

SELECT count(*) FROM (
    SELECT 1 FROM oncegate_content
    WHERE xact >= pg_snapshot_xmin(pg_current_snapshot()) AND entry > %s LIMIT %s
) AS held

-- ====

SELECT count(*), bit_xor(hash_record_extended(ROW(entry, state, lease_until, xmin), 0))
FROM oncegate_open WHERE state <> 1

-- ====

SELECT count(*), coalesce(sum(octet_length(payload.body)), 0)::bigint
FROM oncegate_open AS open
JOIN oncegate_entry AS entry ON entry.id = open.entry
LEFT JOIN oncegate_payload AS payload
       ON payload.month = oncegate_month(entry.received_at) AND payload.entry = entry.id
WHERE open.state IN (5, 6, 7) AND entry.surface = %s AND (%s::boolean OR entry.tenant = %s)

-- ====
SELECT current_setting('synchronous_commit'), current_setting('search_path'), current_setting('statement_timeout'), current_setting('enable_seqscan'), current_setting('jit'), current_setting('default_transaction_isolation'), current_setting('session_authorization'), current_setting('role')
-- ====
SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit'), pg_is_in_recovery()
-- ====

SELECT dead.lane, dead.seq, lane.destination, lane.tenant, lane.key, past.event, past.type, past.created_at,
       dead.at, dead.attempts, dead.error, dead.seq = coalesce(head.replay, head.seq)
FROM oncegate_dead_letter AS dead JOIN oncegate_lane AS lane ON lane.id = dead.lane
JOIN oncegate_head AS head ON head.lane = dead.lane
JOIN oncegate_delivery AS past ON past.lane = dead.lane AND past.seq = dead.seq
WHERE (dead.lane, dead.seq) > (%s, %s)

-- ====

SELECT entry, other FROM oncegate_duplicate WHERE dismissed_at IS NULL AND entry > %s
ORDER BY entry LIMIT %s

-- ====
SELECT entry, other FROM oncegate_duplicate WHERE undecided ORDER BY entry LIMIT %s
-- ====

SELECT entry, trace, context FROM oncegate_trace
WHERE entry = %s

-- ====

SELECT entry.id, entry.key, entry.tenant, entry.surface, entry.label, entry.state, entry.attempt,
       entry.fence, entry.token, entry.fingerprint, entry.received_at, entry.settled_at,
       open.lease_until, entry.reason, open.retry_at
FROM oncegate_entry AS entry LEFT JOIN LATERAL (SELECT * FROM oncegate_open WHERE oncegate_open.entry = id OFFSET 0) AS open ON true
WHERE entry.key = ANY ((SELECT %s::bytea[])::bytea[])
-- ====

SELECT entry.id, entry.key, entry.tenant, entry.surface, entry.label, entry.state, entry.attempt,
       entry.fence, entry.token, entry.fingerprint, entry.received_at, entry.settled_at,
       open.lease_until, entry.reason, open.retry_at
FROM oncegate_entry AS entry LEFT JOIN oncegate_open AS open ON open.entry = entry.id

-- ====

SELECT entry.id, entry.key, entry.tenant, entry.surface, entry.label, entry.state, entry.attempt,
       entry.fence, entry.token, entry.fingerprint, entry.received_at, entry.settled_at,
       open.lease_until, entry.reason, open.retry_at
FROM oncegate_open AS open CROSS JOIN LATERAL (SELECT * FROM oncegate_entry AS one WHERE one.id = open.entry OFFSET 0) AS entry

-- ====

SELECT entry.id, entry.surface, entry.received_at, payload.body, outcome.body
FROM unnest(%s::bigint[]) AS item (id)
JOIN oncegate_entry AS entry ON entry.id = item.id
LEFT JOIN oncegate_payload AS payload
       ON payload.month = oncegate_month(entry.received_at) AND payload.entry = entry.id
LEFT JOIN oncegate_outcome AS outcome
       ON outcome.month = oncegate_month(entry.received_at) AND outcome.entry = entry.id

-- ====

SELECT entry.received_at, content.xact >= pg_snapshot_xmin(pg_current_snapshot())
FROM oncegate_content AS content JOIN oncegate_entry AS entry ON entry.id = content.entry
WHERE (content.xact, content.entry) > (%s::text::xid8, %s) AND content.entry > %s AND content.entry <= %s
ORDER BY content.xact, content.entry LIMIT 1

-- ====

SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND (
    equal.entry < mine.entry OR (equal.xact, equal.entry) < (mine.xact, mine.entry)
)
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1

-- ====
SELECT fingerprint, seq FROM oncegate_feed WHERE tenant = %s AND event_id = %s
-- ====
SELECT floor, last FROM oncegate_feed_tenant WHERE tenant = %s
-- ====

SELECT head.destination, count(*) FILTER (WHERE head.state = 2), count(*) FILTER (WHERE head.state = 3),
       count(*) FILTER (WHERE head.state = 4), sum(lane.last_seq - head.seq + 1)::bigint,
       min(body.created_at), min(dead.at) FILTER (WHERE head.state = 4)
FROM oncegate_head AS head CROSS JOIN LATERAL (SELECT * FROM oncegate_lane AS one WHERE one.id = head.lane OFFSET 0) AS lane
LEFT JOIN oncegate_delivery AS body ON body.lane = head.lane AND body.seq = head.seq
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = head.lane AND dead.seq = head.seq
WHERE head.state <> 1 GROUP BY head.destination

-- ====

SELECT 
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
       ) END
FROM (SELECT target.*, body.event, body.type, body.payload, body.context, body.created_at
      FROM oncegate_head AS target JOIN oncegate_delivery AS body
          ON body.lane = target.lane AND body.seq = coalesce(target.replay, target.seq)
      WHERE target.state <> 1 AND target.state = 3 AND target.holder = ANY(%s)) AS head
CROSS JOIN LATERAL (
    SELECT destination, tenant, key FROM oncegate_lane AS one WHERE one.id = head.lane LIMIT 1
) AS lane

-- ====

SELECT id FROM oncegate_name AS name
WHERE EXISTS (SELECT 1 FROM oncegate_lane WHERE destination = name.id)

-- ====
SELECT id, destination FROM oncegate_lane WHERE id = %s
-- ====
SELECT id, destination FROM oncegate_lane WHERE id > %s ORDER BY id LIMIT %s
-- ====
SELECT id, destination, tenant, key FROM oncegate_lane WHERE id = ANY(%s::bigint[])
-- ====
SELECT id, fence, token FROM oncegate_entry WHERE state = 2 AND id = ANY ((SELECT %s::bigint[])::bigint[])
-- ====

SELECT id, last_seq FROM oncegate_lane WHERE id = ANY(%s)
ORDER BY destination, tenant, key FOR NO KEY UPDATE

-- ====

SELECT id, nonce, destination, tenant, (SELECT key FROM oncegate_lane WHERE id = listed.lane),
       seq_from, seq_to, only_dead, at, actor, reason, deliveries, lanes,
       (SELECT count(*) FROM (SELECT 1 FROM oncegate_replay AS again WHERE again.nonce = listed.nonce
                              LIMIT 100001) AS few),
       taken_back, cancelled_at, cancelled_by, cancelled_why, since, until, type
FROM (SELECT * FROM oncegate_replay_order AS replayed WHERE {where} ORDER BY id DESC LIMIT %s) AS listed
ORDER BY id DESC

-- ====

SELECT id, oncegate_month(received_at) FROM oncegate_entry
WHERE id = ANY(%s::bigint[]) AND state IN (2, 3) ORDER BY id FOR UPDATE

-- ====
SELECT id, state, reason, since, not_before FROM oncegate_destination
-- ====

SELECT id, surface, CASE WHEN (state = 4 AND NOT EXISTS (
    SELECT 1 FROM oncegate_step AS step WHERE step.entry = oncegate_entry.id AND step.state <> 3)) THEN -4 ELSE state END, received_at, coalesce(settled_at, received_at), tenant
FROM oncegate_entry
WHERE id > %s ORDER BY id LIMIT %s

-- ====
SELECT id, text FROM oncegate_name WHERE id = ANY(%s)
-- ====
SELECT id, text, unused_since IS NULL FROM oncegate_name WHERE text = ANY(%s)
-- ====

SELECT id, unused_since, unused_xact < pg_snapshot_xmin(pg_current_snapshot()) FROM oncegate_name AS name
LEFT JOIN (SELECT DISTINCT surface AS used FROM oncegate_entry UNION ALL SELECT DISTINCT tenant AS used FROM oncegate_entry UNION ALL SELECT DISTINCT downstream AS used FROM oncegate_step UNION ALL SELECT DISTINCT declared AS used FROM oncegate_step UNION ALL SELECT DISTINCT actor AS used FROM oncegate_log UNION ALL SELECT DISTINCT tenant AS used FROM oncegate_feed_tenant UNION ALL SELECT DISTINCT tenant AS used FROM oncegate_feed_key UNION ALL SELECT DISTINCT tenant AS used FROM oncegate_feed UNION ALL SELECT DISTINCT tenant AS used FROM oncegate_feed_reader UNION ALL SELECT DISTINCT id AS used FROM oncegate_destination UNION ALL SELECT DISTINCT destination AS used FROM oncegate_lane UNION ALL SELECT DISTINCT tenant AS used FROM oncegate_lane UNION ALL SELECT DISTINCT destination AS used FROM oncegate_delivery UNION ALL SELECT DISTINCT type AS used FROM oncegate_delivery UNION ALL SELECT DISTINCT surface AS used FROM oncegate_tally UNION ALL SELECT DISTINCT dismissed_by AS used FROM oncegate_duplicate UNION ALL SELECT DISTINCT destination AS used FROM oncegate_replay_order UNION ALL SELECT DISTINCT tenant AS used FROM oncegate_replay_order UNION ALL SELECT DISTINCT surface AS used FROM oncegate_seen UNION ALL SELECT DISTINCT surface AS used FROM oncegate_seen_repeat UNION ALL SELECT DISTINCT dismissed_by AS used FROM oncegate_second UNION ALL SELECT DISTINCT declared AS used FROM oncegate_open UNION ALL SELECT DISTINCT destination AS used FROM oncegate_head) AS uses
       ON used = id
WHERE (SELECT count(*) FROM (SELECT 1 FROM oncegate_name LIMIT %s) AS counted) > %s AND used IS NULL
ORDER BY id LIMIT %s

-- ====

SELECT kind, name, version, body, changed_at FROM oncegate_document
WHERE kind = %s AND body IS NOT NULL ORDER BY name COLLATE "C"

-- ====

SELECT kind, name, version, body, changed_at FROM oncegate_document
WHERE kind = %s AND name = %s AND body IS NOT NULL

-- ====

SELECT kind, name, writer, body, told_at, greatest(0, %s - posted) FROM oncegate_notice
WHERE kind = %s AND (%s::text IS NULL OR name = %s) AND until > %s
ORDER BY name COLLATE "C", writer COLLATE "C"

-- ====

SELECT known.entry, known.class, known.first_at, known.last_at, known.times, known.evidence FROM oncegate_repeat AS known
JOIN oncegate_entry AS entry ON entry.id = known.entry JOIN oncegate_name AS name ON name.id = entry.surface
WHERE known.class IN (4, 5, 6, 7) AND (%s::text IS NULL OR name.text = %s::text)
ORDER BY known.last_at DESC LIMIT %s

-- ====
SELECT known.entry, known.class, known.first_at, known.last_at, known.times, known.evidence FROM oncegate_repeat AS known WHERE entry = %s ORDER BY first_at, class
-- ====
SELECT lane, seq FROM oncegate_position WHERE lane = ANY ((SELECT %s::bytea[])::bytea[])
-- ====

SELECT lane, seq, fence, at, took, status, error FROM oncegate_attempt
WHERE lane = %s AND seq = %s ORDER BY fence

-- ====

SELECT lane.destination, count(*) FROM oncegate_dead_letter AS dead CROSS JOIN LATERAL
    (SELECT destination FROM oncegate_lane AS one WHERE one.id = dead.lane OFFSET 0) AS lane
GROUP BY lane.destination

-- ====

SELECT lane.id, lane.destination, lane.tenant, lane.key, head.state, head.seq, lane.last_seq, head.attempt,
       head.error, head.due_at, body.created_at, head.replay
FROM oncegate_head AS head CROSS JOIN LATERAL (SELECT * FROM oncegate_lane AS one WHERE one.id = head.lane OFFSET 0) AS lane
LEFT JOIN oncegate_delivery AS body ON body.lane = head.lane AND body.seq = head.seq

-- ====

SELECT lane.id, lane.destination, lane.tenant, lane.key, head.state, head.seq, lane.last_seq, head.attempt,
       head.error, head.due_at, body.created_at, head.replay
FROM oncegate_head AS head JOIN oncegate_lane AS lane ON lane.id = head.lane
LEFT JOIN oncegate_delivery AS body ON body.lane = head.lane AND body.seq = head.seq

-- ====

SELECT link.entry
FROM (SELECT entry FROM oncegate_trace
  WHERE trace = %s OFFSET 0) AS link
LEFT JOIN LATERAL (SELECT tenant FROM oncegate_entry AS one
  WHERE one.id = link.entry OFFSET 0) AS entry ON true
WHERE (CAST(%s AS text) IS NULL OR entry.tenant = (SELECT id FROM oncegate_name
    WHERE text = CAST(%s AS text)))
ORDER BY row_number() OVER (PARTITION BY entry.tenant
  ORDER BY link.entry), link.entry LIMIT %s

-- ====

SELECT log.xact::text::numeric, position, entry, kind, at, actor, note FROM oncegate_log AS log
WHERE (log.xact, position) > (%s::text::xid8, %s) AND {within}
ORDER BY log.xact, log.position LIMIT %s

-- ====

SELECT log.xact::text::numeric, position, entry, kind, at, actor, note FROM oncegate_log AS log{where}
ORDER BY log.xact DESC, log.position DESC LIMIT %s

-- ====
SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL
-- ====
SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS made (name, place) WHERE to_regclass(name) IS NOT NULL ORDER BY place LIMIT 1
-- ====

SELECT name, quote_ident(current_user) FROM unnest(%s::text[]) AS needed (name)
WHERE NOT has_function_privilege(name, 'EXECUTE')

-- ====
SELECT name, value FROM oncegate_meta WHERE name IN ('schema_version', 'schema', 'moved')
-- ====

SELECT name.text, %s::bigint, what, count, total FROM (
    SELECT surface, what, sum(count)::bigint AS count, sum(total)::bigint AS total FROM oncegate_tally
    WHERE minute >= %s AND minute < %s GROUP BY surface, what OFFSET 0
) AS sums JOIN oncegate_name AS name ON id = surface ORDER BY name.text, what

-- ====

SELECT name.text, count(*), min(pair.flagged_at)
FROM oncegate_duplicate AS pair
CROSS JOIN LATERAL (SELECT * FROM oncegate_entry AS one WHERE one.id = pair.entry OFFSET 0) AS later
JOIN oncegate_name AS name ON name.id = later.surface
WHERE pair.dismissed_at IS NULL AND later.state = 2 AND (
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND (
    equal.entry < mine.entry OR (equal.xact, equal.entry) < (mine.xact, mine.entry)
)
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1
) IS NOT NULL
GROUP BY name.text ORDER BY name.text

-- ====

SELECT name.text, minute, what, count, total FROM oncegate_tally JOIN oncegate_name AS name ON id = surface
WHERE minute >= %s AND minute < %s AND (%s::text IS NULL OR name.text = %s::text)
ORDER BY minute, name.text, what

-- ====

SELECT name.text, reader.reader, reader.position, reader.at,
       greatest(coalesce(ends.last, 0) - greatest(reader.position, coalesce(ends.floor, 0)), 0)
       + (SELECT count(*) FROM oncegate_feed AS fresh
          WHERE fresh.tenant = reader.tenant AND fresh.position IS NULL),
       (SELECT at FROM oncegate_feed AS event
        WHERE event.tenant = reader.tenant AND (event.position > reader.position OR event.position IS NULL)
        ORDER BY event.position LIMIT 1)
FROM oncegate_feed_reader AS reader
JOIN oncegate_name AS name ON name.id = reader.tenant
LEFT JOIN oncegate_feed_tenant AS ends ON ends.tenant = reader.tenant
WHERE %s::text IS NULL OR name.text = %s::text
ORDER BY name.text, reader.reader

-- ====

SELECT name.text, state, count(*) FROM oncegate_entry JOIN oncegate_name AS name ON name.id = surface
GROUP BY name.text, state ORDER BY name.text COLLATE "C", state

-- ====

SELECT name.text, state, kind, within, count, oldest, oldest_at, expired, tried FROM (
    SELECT entry.surface, entry.state, 
CASE WHEN entry.state = 7 AND strpos(reason, ':') BETWEEN 2 AND 40 THEN split_part(reason, ':', 1)
     WHEN entry.state = 7 THEN 'other'
     WHEN entry.state IN (5, 6) AND reason LIKE 'gave up after %%' THEN 'attempts_used_up'
     WHEN entry.state IN (5, 6) AND reason LIKE '%% resources for %%' THEN 'two_resources'
     WHEN entry.state = 6 AND reason LIKE '%%approv%%' THEN 'approval'
     WHEN entry.state IN (5, 6) THEN 'in_doubt'
     ELSE '' END
 AS kind, 
CASE WHEN entry.state = 6 AND reason LIKE 'waits for approval, to be decided within %%'
     THEN substr(reason, 42) END
 AS within, count(*) AS count,
           min(CASE entry.state WHEN 1 THEN open.first_reserved ELSE open.lease_until END) AS oldest,
           min(coalesce(entry.settled_at, entry.received_at)) AS oldest_at,
           count(*) FILTER (WHERE entry.state = 1 AND open.lease_until <= %s) AS expired,
           max(CASE WHEN entry.state = 4 AND entry.attempt > 0
                    THEN greatest(0, entry.settled_at - entry.received_at) ELSE 0 END) AS tried
    FROM oncegate_open AS open
    CROSS JOIN LATERAL (SELECT * FROM oncegate_entry AS one WHERE one.id = open.entry OFFSET 0) AS entry
    WHERE entry.state NOT IN (2, 3) AND (%s::boolean IS NULL OR (open.state = 1) = %s::boolean)
    GROUP BY 1, 2, 3, 4 OFFSET 0
) AS counted JOIN oncegate_name AS name ON name.id = surface ORDER BY 1, 2, 3, 4

-- ====

SELECT number, entry, name, target, nth, before, after, done, at FROM oncegate_mutation
WHERE number > %s AND (number > %s OR xid >= %s::text::xid8) ORDER BY number LIMIT %s

-- ====

SELECT open.entry FROM oncegate_open AS open JOIN oncegate_entry AS entry ON entry.id = open.entry
WHERE open.state = %s AND open.lease_until <= %s AND (%s::int[] IS NULL OR entry.surface = ANY(%s::int[]))
ORDER BY greatest(open.lease_until, open.retry_at), open.entry LIMIT %s

-- ====

SELECT pair.entry, pair.other, coalesce(content.target, ''), content.compensation, pair.flagged_at,
       pair.dismissed_at, pair.dismissed_by, pair.note,
       CASE WHEN later.id IS NOT NULL THEN (
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND (
    equal.entry < mine.entry OR (equal.xact, equal.entry) < (mine.xact, mine.entry)
)
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1
) END
FROM oncegate_duplicate AS pair LEFT JOIN oncegate_content AS content ON content.entry = pair.entry
LEFT JOIN oncegate_entry AS later ON later.id = pair.entry AND later.state = 2
WHERE 
-- ====

SELECT pair.entry, pair.other, coalesce(content.target, ''), content.compensation, pair.flagged_at,
       pair.dismissed_at, pair.dismissed_by, pair.note,
       CASE WHEN later.id IS NOT NULL THEN (
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND (
    equal.entry < mine.entry OR (equal.xact, equal.entry) < (mine.xact, mine.entry)
)
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1
) END
FROM oncegate_duplicate AS pair LEFT JOIN oncegate_content AS content ON content.entry = pair.entry
LEFT JOIN oncegate_entry AS later ON later.id = pair.entry AND later.state = 2
WHERE  pair.dismissed_at IS NULL AND pair.entry > %s
AND (NOT %s::boolean OR (later.id IS NOT NULL AND (
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND (
    equal.entry < mine.entry OR (equal.xact, equal.entry) < (mine.xact, mine.entry)
)
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1
) IS NOT NULL))
AND (%s::text IS NULL OR %s = (SELECT name.text FROM oncegate_entry AS half
                      JOIN oncegate_name AS name ON name.id = half.surface WHERE half.id = pair.entry))
ORDER BY pair.entry LIMIT %s
-- ====

SELECT pair.entry, pair.other, coalesce(content.target, ''), content.compensation, pair.flagged_at,
       pair.dismissed_at, pair.dismissed_by, pair.note,
       CASE WHEN later.id IS NOT NULL THEN (
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND (
    equal.entry < mine.entry OR (equal.xact, equal.entry) < (mine.xact, mine.entry)
)
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1
) END
FROM oncegate_duplicate AS pair LEFT JOIN oncegate_content AS content ON content.entry = pair.entry
LEFT JOIN oncegate_entry AS later ON later.id = pair.entry AND later.state = 2
WHERE  pair.entry < %s AND (%s OR pair.dismissed_at IS NULL) ORDER BY pair.entry DESC LIMIT %s
-- ====

SELECT past.lane, past.seq, destination.text, tenant.text, lane.key, past.event, kind.text,
    past.created_at, past.context, head.seq, ack.at, coalesce(ack.attempts, dead.attempts, 0),
    coalesce(dead.error, ack.note), dead.seq IS NOT NULL
FROM (SELECT sent.* FROM oncegate_delivery AS sent
  CROSS JOIN LATERAL (SELECT tenant FROM oncegate_lane AS one
    WHERE one.id = sent.lane OFFSET 0) AS owner
  WHERE substring(sent.context FROM 14 FOR 32) = %s
  AND substring(sent.context FROM 1 FOR 13) = '\x7b2274726163655f6964223a22'::bytea
  AND (CAST(%s AS text) IS NULL OR owner.tenant = (SELECT id FROM oncegate_name
      WHERE text = CAST(%s AS text)))
  ORDER BY row_number() OVER (PARTITION BY owner.tenant
    ORDER BY sent.created_at, sent.lane, sent.seq), sent.created_at, sent.lane,
        sent.seq LIMIT %s) AS past
CROSS JOIN LATERAL (SELECT * FROM oncegate_lane AS one
  WHERE one.id = past.lane OFFSET 0) AS lane
CROSS JOIN LATERAL (SELECT * FROM oncegate_head AS one
  WHERE one.lane = past.lane OFFSET 0) AS head
JOIN oncegate_name AS destination ON destination.id = past.destination
JOIN oncegate_name AS tenant ON tenant.id = lane.tenant
JOIN oncegate_name AS kind ON kind.id = past.type
LEFT JOIN oncegate_ack AS ack ON ack.lane = past.lane AND ack.seq = past.seq
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq
ORDER BY past.created_at, past.lane, past.seq

-- ====

SELECT past.lane, past.seq, destination.text, tenant.text, lane.key, past.event, kind.text,
    past.created_at, past.context, head.seq, ack.at, coalesce(ack.attempts, dead.attempts, 0),
    coalesce(dead.error, ack.note), dead.seq IS NOT NULL
FROM (SELECT sent.* FROM oncegate_delivery AS sent
  WHERE sent.destination IN (WITH RECURSIVE named (number) AS (SELECT min(destination) FROM
      oncegate_lane
      UNION ALL SELECT (SELECT min(destination) FROM oncegate_lane
        WHERE destination > number) FROM named
      WHERE number IS NOT NULL) SELECT number FROM named
    WHERE number IS NOT NULL)
  AND sent.event = %s
  ORDER BY sent.created_at, sent.lane, sent.seq LIMIT %s) AS past
CROSS JOIN LATERAL (SELECT * FROM oncegate_lane AS one
  WHERE one.id = past.lane OFFSET 0) AS lane
CROSS JOIN LATERAL (SELECT * FROM oncegate_head AS one
  WHERE one.lane = past.lane OFFSET 0) AS head
JOIN oncegate_name AS destination ON destination.id = past.destination
JOIN oncegate_name AS tenant ON tenant.id = lane.tenant
JOIN oncegate_name AS kind ON kind.id = past.type
LEFT JOIN oncegate_ack AS ack ON ack.lane = past.lane AND ack.seq = past.seq
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq
ORDER BY past.created_at, past.lane, past.seq

-- ====

SELECT past.lane, past.seq, past.event, past.type, past.created_at, ack.at,
       coalesce(ack.attempts, dead.attempts, 0), coalesce(dead.error, ack.note), dead.seq IS NOT NULL
FROM oncegate_delivery AS past
LEFT JOIN oncegate_ack AS ack ON ack.lane = past.lane AND ack.seq = past.seq
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq
WHERE past.lane = %s AND past.seq >= %s ORDER BY past.seq LIMIT %s

-- ====

SELECT payload.body, outcome.body FROM oncegate_entry AS entry
LEFT JOIN oncegate_payload AS payload
       ON payload.month = oncegate_month(entry.received_at) AND payload.entry = entry.id
LEFT JOIN oncegate_outcome AS outcome
       ON outcome.month = oncegate_month(entry.received_at) AND outcome.entry = entry.id
WHERE entry.id = %s

-- ====
SELECT pg_advisory_xact_lock(7229, 1)
-- ====
SELECT pg_advisory_xact_lock(7229, 2)
-- ====
SELECT pg_advisory_xact_lock(7229, hashtext(%s))
-- ====
SELECT pg_advisory_xact_lock(x'6F6E636567617465'::bigint)
-- ====
SELECT pg_backend_pid()
-- ====
SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'
-- ====
SELECT pg_logical_emit_message(true, 'oncegate', 'doctor')
-- ====
SELECT pg_logical_emit_message(true, 'oncegate', 'doubt')
-- ====
SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s
-- ====
SELECT pg_xact_status(%s::text::xid8)
-- ====
SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()
-- ====
SELECT position FROM oncegate_feed_reader WHERE tenant = %s AND reader = %s
-- ====

SELECT position, at FROM oncegate_feed WHERE tenant = %s AND position > %s ORDER BY position LIMIT %s

-- ====

SELECT position, event_id, key, seq, body, at, context FROM (
    SELECT *, sum(octet_length(body)) OVER so_far AS bytes, row_number() OVER so_far AS place FROM (
        SELECT position, event_id, key, seq, body, at, context FROM oncegate_feed
        WHERE tenant = %s AND position > %s ORDER BY position LIMIT %s
    ) AS following WINDOW so_far AS (ORDER BY position ROWS UNBOUNDED PRECEDING)
) AS page
WHERE bytes <= %s OR place = 1 ORDER BY position

-- ====

SELECT privilege, string_agg(name, ', ' ORDER BY name), quote_ident(current_user)
FROM unnest(%s::text[], %s::text[]) AS needed (name, privilege)
WHERE NOT has_table_privilege(name, privilege) GROUP BY privilege ORDER BY privilege

-- ====
SELECT quote_ident(current_database())
-- ====

SELECT second.id, coalesce(name.text, ''), second.target, second.step, second.place, second.entry,
       second.resource, second.other, second.other_resource, second.found_at, later.state,
       coalesce(person.text, ''), coalesce(second.note, '')
FROM oncegate_second AS second
LEFT JOIN oncegate_entry AS later ON later.id = second.entry
LEFT JOIN oncegate_name AS name ON name.id = later.surface
LEFT JOIN oncegate_name AS person ON person.id = second.dismissed_by
WHERE second.dismissed_at IS NULL AND second.id > %s ORDER BY second.id LIMIT %s

-- ====

SELECT second.id, coalesce(name.text, ''), second.target, second.step, second.place, second.entry,
       second.resource, second.other, second.other_resource, second.found_at, later.state,
       coalesce(person.text, ''), coalesce(second.note, '')
FROM oncegate_second AS second
LEFT JOIN oncegate_entry AS later ON later.id = second.entry
LEFT JOIN oncegate_name AS name ON name.id = later.surface
LEFT JOIN oncegate_name AS person ON person.id = second.dismissed_by
WHERE second.dismissed_at IS NULL AND second.id > {place} ORDER BY second.id LIMIT {place}

-- ====

SELECT seq FROM oncegate_delivery AS past WHERE lane = %s AND seq BETWEEN %s AND %s
   AND (NOT %s OR EXISTS (SELECT 1 FROM oncegate_dead_letter AS dead
                          WHERE dead.lane = past.lane AND dead.seq = past.seq))
   AND created_at >= coalesce(%s::bigint, created_at) AND created_at < coalesce(%s::bigint, created_at + 1)
   AND type = coalesce(%s::int, type)
ORDER BY seq LIMIT %s

-- ====

SELECT seq, replay, state, fence, attempt, due_at, holder FROM oncegate_head WHERE lane = %s
FOR NO KEY UPDATE

-- ====
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)
-- ====
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true)
-- ====
SELECT set_config('lock_timeout', '2s', true)
-- ====
SELECT set_config('lock_timeout', '500ms', true), set_config('statement_timeout', '5s', true)
-- ====
SELECT set_config('plan_cache_mode', 'force_generic_plan', true)
-- ====
SELECT state, not_before FROM oncegate_destination WHERE id = %s FOR UPDATE
-- ====
SELECT state, reason FROM oncegate_entry WHERE id = %s FOR UPDATE
-- ====

SELECT step.name, step.state, downstream.text, step.result, step.resource, step.started_at,
       (SELECT text FROM oncegate_name WHERE id = step.declared), step.last_call, step.first_call
FROM oncegate_step AS step
JOIN oncegate_name AS downstream ON downstream.id = step.downstream WHERE step.entry = %s ORDER BY step.name

-- ====

SELECT surface, at, entry, first_at, fresh FROM unnest(%s::int[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT surface, at, entry, first_at, fresh FROM oncegate_seen_repeat
    WHERE surface = wanted.id AND at BETWEEN %s AND %s
    ORDER BY at DESC, entry DESC LIMIT 256
) AS recent ORDER BY at, entry

-- ====
SELECT sync_state FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'
-- ====
SELECT system_identifier::text FROM pg_control_system()
-- ====

SELECT tenant.text, past.key, past.seq, past.event_id, past.at, past.context
FROM (SELECT * FROM oncegate_feed AS sent
  WHERE sent.tenant IN (WITH RECURSIVE named (number) AS (SELECT min(tenant) FROM oncegate_feed_key
      UNION ALL SELECT (SELECT min(tenant) FROM oncegate_feed_key
        WHERE tenant > number) FROM named
      WHERE number IS NOT NULL) SELECT number FROM named
    WHERE number IS NOT NULL)
  AND sent.event_id = %s
  ORDER BY sent.at, sent.tenant, sent.seq LIMIT %s) AS past
JOIN oncegate_name AS tenant ON tenant.id = past.tenant
ORDER BY past.at, past.tenant, past.seq

-- ====

SELECT tenant.text, past.key, past.seq, past.event_id, past.at, past.context
FROM (SELECT * FROM oncegate_feed AS sent
  WHERE substring(sent.context FROM 14 FOR 32) = %s
  AND substring(sent.context FROM 1 FOR 13) = '\x7b2274726163655f6964223a22'::bytea
  AND (CAST(%s AS text) IS NULL OR sent.tenant = (SELECT id FROM oncegate_name
      WHERE text = CAST(%s AS text)))
  ORDER BY row_number() OVER (PARTITION BY sent.tenant
    ORDER BY sent.at, sent.tenant, sent.seq), sent.at, sent.tenant, sent.seq LIMIT %s) AS past
JOIN oncegate_name AS tenant ON tenant.id = past.tenant
ORDER BY past.at, past.tenant, past.seq

-- ====

SELECT text FROM oncegate_name AS name
WHERE EXISTS (SELECT 1 FROM oncegate_entry WHERE surface = name.id) ORDER BY text

-- ====
SELECT to_regclass(%s) IS NOT NULL
-- ====
SELECT value = %s FROM oncegate_meta WHERE name = 'ledger_id'
-- ====
SELECT value FROM oncegate_meta WHERE name = 'eras'
-- ====
SELECT value FROM oncegate_meta WHERE name = 'feed_secret'
-- ====
SELECT value FROM oncegate_meta WHERE name = 'ledger_id'
-- ====
SELECT value FROM oncegate_meta WHERE name = 'scanned'
-- ====
SELECT value FROM oncegate_meta WHERE name = 'sighting' FOR UPDATE
-- ====
SELECT value::int FROM oncegate_meta WHERE name = 'schema_version'
-- ====

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

-- ====

SELECT xact::text::numeric, position, entry, kind, at, actor, note FROM oncegate_log
WHERE entry = %s ORDER BY position

-- ====
SET CONSTRAINTS ALL IMMEDIATE
-- ====
SET LOCAL enable_seqscan = on
-- ====
SET lock_timeout = 100
-- ====
UPDATE oncegate_content SET target = '' WHERE entry = %s RETURNING entry
-- ====
UPDATE oncegate_delivery SET payload = %s WHERE 
substring(convert_from(context, 'UTF8') FROM '"cause":"([0-9a-f]+)"') IN (
    SELECT encode(key, 'hex') FROM oncegate_entry WHERE id = ANY(%s::bigint[]))
 AND (lane, seq) IN (SELECT lane, seq FROM oncegate_ack) RETURNING seq
-- ====

UPDATE oncegate_destination SET state = %s, since = %s, reason = %s,
       not_before = CASE WHEN %s THEN 0 ELSE not_before END
WHERE id = %s

-- ====

UPDATE oncegate_document SET version = version + 1, body = %s, changed_at = %s
WHERE kind = %s AND name = %s AND version = %s AND body IS NOT NULL
RETURNING version

-- ====

UPDATE oncegate_duplicate SET dismissed_at = %s, dismissed_by = %s, note = %s, undecided = false
WHERE entry = %s AND dismissed_at IS NULL RETURNING 1

-- ====
UPDATE oncegate_duplicate SET undecided = %s WHERE entry = %s
-- ====

UPDATE oncegate_entry SET label = %s, reason = NULL WHERE id = %s AND label <> %s RETURNING id

-- ====
UPDATE oncegate_feed SET body = %s WHERE 
substring(convert_from(context, 'UTF8') FROM '"cause":"([0-9a-f]+)"') IN (
    SELECT encode(key, 'hex') FROM oncegate_entry WHERE id = ANY(%s::bigint[]))
 RETURNING id
-- ====
UPDATE oncegate_feed_tenant SET floor = %s WHERE tenant = %s
-- ====

UPDATE oncegate_head SET replay = %s, state = 2, due_at = %s, attempt = 0, error = NULL
WHERE lane = %s AND state <> 3

-- ====

UPDATE oncegate_head SET replay = NULL, attempt = 0, state = %s, due_at = %s WHERE lane = %s

-- ====
UPDATE oncegate_head SET state = 2, due_at = %s, attempt = 0 WHERE lane = %s
-- ====

UPDATE oncegate_head SET state = 4, due_at = NULL, holder = NULL, attempt = %s, error = %s WHERE lane = %s

-- ====
UPDATE oncegate_lane SET idle = %s WHERE id = %s
-- ====

UPDATE oncegate_log SET note = %s WHERE xact = %s::text::xid8 AND position = %s RETURNING position

-- ====
UPDATE oncegate_meta SET value = %s WHERE name = 'sighting'
-- ====

UPDATE oncegate_mutation
SET before = CASE WHEN before IS NOT NULL THEN %s::bytea END,
    after = CASE WHEN after IS NOT NULL THEN %s::bytea END
WHERE entry = ANY(%s::bigint[]) RETURNING entry

-- ====
UPDATE oncegate_name SET unused_since = %s WHERE id = ANY(%s) AND unused_since IS NULL
-- ====
UPDATE oncegate_name SET unused_xact = pg_current_xact_id() WHERE id = ANY(%s) AND unused_since <= %s AND unused_xact IS NULL
-- ====

UPDATE oncegate_outcome SET body = %s WHERE month = %s AND entry = %s AND body <> %s RETURNING entry

-- ====
UPDATE oncegate_repeat SET evidence = '' WHERE entry = %s RETURNING entry
-- ====

UPDATE oncegate_replay_order SET cancelled_at = %s, cancelled_by = %s, cancelled_why = %s,
       taken_back = taken_back + %s WHERE nonce = %s

-- ====

UPDATE oncegate_second SET dismissed_at = %s, dismissed_by = %s, note = %s
WHERE id = %s AND dismissed_at IS NULL RETURNING entry

-- ====

UPDATE oncegate_ticks AS kept
SET ticks = kept.ticks + least(greatest(due.now - kept.wall, 0), 20000), wall = due.now
FROM (
    SELECT one, oncegate_clock() AS now FROM oncegate_ticks
    WHERE one AND abs(oncegate_clock() - wall) >= 1000 FOR UPDATE SKIP LOCKED
) AS due
WHERE kept.one = due.one

-- ====

WITH RECURSIVE under_way (nonce) AS (
    (SELECT nonce FROM oncegate_replay ORDER BY nonce LIMIT 1) UNION ALL
    SELECT (SELECT again.nonce FROM oncegate_replay AS again WHERE again.nonce > under_way.nonce
            ORDER BY again.nonce LIMIT 1) FROM under_way WHERE under_way.nonce IS NOT NULL)

-- ====

WITH added AS (
    INSERT INTO oncegate_feed (seq, at, tenant, event_id, key, fingerprint, body, context)
    VALUES (%s, %s, %s, %s, %s, %s, %s, nullif(%s, ''::bytea))
    ON CONFLICT (tenant, event_id) DO NOTHING
    RETURNING tenant, key, seq
)
UPDATE oncegate_feed_key AS known SET seq = added.seq FROM added
WHERE known.tenant = added.tenant AND known.key = added.key
RETURNING known.seq

-- ====

WITH batch AS MATERIALIZED (
    SELECT * FROM unnest(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[])
        AS given (surface, content, entry, at, times, within)
),
kept AS (
    INSERT INTO oncegate_seen AS known (surface, content, entry, at, shared_by, before, before_at)
    SELECT surface, content, entry, at, times, NULL, within FROM batch ORDER BY surface, content
    ON CONFLICT (surface, content) DO UPDATE
    SET entry = excluded.entry, at = excluded.at,
        shared_by = excluded.shared_by
            + CASE WHEN abs(excluded.at - known.at) <= excluded.before_at THEN known.shared_by ELSE 0 END,
        before = CASE WHEN abs(excluded.at - known.at) <= excluded.before_at THEN known.entry END,
        before_at = known.at
    RETURNING surface, content, before, before_at, shared_by
)
SELECT surface, content, before, before_at, shared_by FROM kept WHERE before IS NOT NULL

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now)
INSERT INTO oncegate_destination AS gate (id, not_before) SELECT %s, now + %s FROM clock
ON CONFLICT (id) DO UPDATE SET not_before = greatest(gate.not_before, excluded.not_before)

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now)
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now)
SELECT entry.key, entry.id, entry.state, entry.fingerprint, entry.attempt, entry.fence,
       coalesce(open.lease_until, 0), entry.reason, coalesce(open.first_reserved, 0), entry.received_at,
       outcome.body, now, (SELECT text FROM oncegate_name WHERE oncegate_name.id = open.declared),
       coalesce(open.retry_at, 0), coalesce(open.interruptions, 0), coalesce(open.tried_from, 0)
FROM clock, oncegate_entry AS entry
LEFT JOIN LATERAL (SELECT * FROM oncegate_open WHERE oncegate_open.entry = id OFFSET 0) AS open ON true
LEFT JOIN oncegate_outcome AS outcome
       ON outcome.month = oncegate_month(entry.received_at) AND outcome.entry = entry.id
WHERE entry.key = ANY ((SELECT %s::bytea[])::bytea[])

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now)
SELECT entry.key, entry.id, entry.state, entry.fingerprint, entry.attempt, entry.fence,
       coalesce(open.lease_until, 0), entry.reason, coalesce(open.first_reserved, 0), entry.received_at,
       outcome.body, now, (SELECT text FROM oncegate_name WHERE oncegate_name.id = open.declared),
       coalesce(open.retry_at, 0), coalesce(open.interruptions, 0), coalesce(open.tried_from, 0)
FROM clock, oncegate_entry AS entry
LEFT JOIN LATERAL (SELECT * FROM oncegate_open WHERE oncegate_open.entry = id OFFSET 0) AS open ON true
LEFT JOIN oncegate_outcome AS outcome
       ON outcome.month = oncegate_month(entry.received_at) AND outcome.entry = entry.id
WHERE entry.key = ANY(ARRAY[%s::bytea])

-- ====
WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now) SELECT now FROM clock
-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
due AS MATERIALIZED (
    SELECT lane, coalesce(replay, seq) AS seq FROM oncegate_head
    WHERE destination = %s AND due_at <= (SELECT now FROM clock)
    ORDER BY due_at LIMIT %s FOR NO KEY UPDATE SKIP LOCKED
),
ready AS MATERIALIZED (
    SELECT body.* FROM due CROSS JOIN LATERAL (
        SELECT lane, event, type, payload, context, created_at FROM oncegate_delivery AS one
        WHERE one.lane = due.lane AND one.seq = due.seq LIMIT 1
    ) AS body
),
head AS (
    UPDATE oncegate_head AS target
    SET state = 3, fence = target.fence + 1, holder = %s, due_at = now + %s
    FROM clock, ready AS body
    WHERE target.lane = body.lane AND target.lane = ANY (ARRAY(SELECT lane FROM ready))
    RETURNING target.lane, target.fence, target.holder, target.replay, target.seq, target.attempt,
              target.due_at, body.event, body.type, body.payload, body.context, body.created_at
)
SELECT due.lane, 
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
       ) END
FROM due LEFT JOIN (head CROSS JOIN LATERAL (
    SELECT destination, tenant, key FROM oncegate_lane AS one WHERE one.id = head.lane LIMIT 1
) AS lane) ON head.lane = due.lane

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
fresh AS (
    INSERT INTO oncegate_entry
        (id, fence, received_at, surface, tenant, attempt, state, key, fingerprint, label, token)
    SELECT number, number, %s::bigint, %s::int, %s::int, 1, 1, key, %s::bytea, %s::text, %s::bigint
    FROM nextval('oncegate_number') AS number, (SELECT %s::bytea AS key) AS wanted
    WHERE (SELECT id FROM oncegate_entry AS known WHERE known.key = wanted.key) IS NULL
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
held AS MATERIALIZED (
    SELECT lane, seq, replay, destination, %s::bigint AS lease_ms, %s::bigint AS next_holder, 1 AS place
    FROM oncegate_head WHERE lane = %s
),

step AS MATERIALIZED (
    SELECT held.*, seq + (replay IS NULL)::int AS next_seq,
           (SELECT min(again.seq) FROM oncegate_replay AS again
            WHERE again.lane = held.lane AND again.seq > coalesce(held.replay, 0)) AS next_replay,
           lease_ms > 0 AND NOT EXISTS (SELECT 1 FROM oncegate_destination AS gate
    WHERE gate.id = held.destination AND (gate.state <> 1 OR gate.not_before > now)) AS may
    FROM held, clock
),
follow AS MATERIALIZED (
    SELECT step.*, body.lane IS NOT NULL AS present, body.event, body.type, body.payload, body.context,
           body.created_at,
           step.replay IS NOT NULL AND step.next_replay IS NULL AND (
               SELECT gone.seq FROM oncegate_dead_letter AS gone
               WHERE gone.lane = step.lane AND gone.seq = step.next_seq) IS NOT NULL AS dead
    FROM step LEFT JOIN LATERAL (
        SELECT lane, event, type, payload, context, created_at FROM oncegate_delivery AS one
        WHERE one.lane = step.lane AND one.seq = coalesce(step.next_replay, step.next_seq) LIMIT 1
    ) AS body
        ON true
),
free AS MATERIALIZED (
    SELECT lane.* FROM follow CROSS JOIN LATERAL (
        SELECT id, last_seq FROM oncegate_lane AS one WHERE one.id = follow.lane
        FOR NO KEY UPDATE OF one SKIP LOCKED
    ) AS lane WHERE NOT present
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
                      WHEN free.id IS NULL THEN now + 3
                      WHEN free.last_seq < next_seq THEN NULL
                      ELSE now END
    FROM clock, follow LEFT JOIN free ON free.id = follow.lane
    WHERE target.lane = follow.lane AND target.lane = ANY (ARRAY(SELECT lane FROM follow))
    RETURNING place, target.state, target.lane, target.fence, target.holder, target.replay, target.seq,
              target.attempt, target.due_at, follow.event, follow.type, follow.payload, follow.context,
              follow.created_at
)
SELECT head.place::int, head.state = 3, 
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
       ) END
FROM head CROSS JOIN LATERAL (
    SELECT destination, tenant, key FROM oncegate_lane AS one WHERE one.id = head.lane LIMIT 1
) AS lane


-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
ours AS MATERIALIZED (
    SELECT lane, seq FROM oncegate_head
    WHERE lane = ANY(%s) AND state <> 1 AND replay IS NULL AND due_at <= (SELECT now FROM clock)
    ORDER BY lane FOR NO KEY UPDATE SKIP LOCKED
),
free AS MATERIALIZED (
    SELECT lane.* FROM ours CROSS JOIN LATERAL (
        SELECT id, last_seq FROM oncegate_lane AS one WHERE one.id = ours.lane
        FOR NO KEY UPDATE OF one SKIP LOCKED
    ) AS lane
),
idled AS (
    UPDATE oncegate_lane AS target SET idle = 1 FROM free JOIN ours ON ours.lane = free.id
    WHERE target.id = free.id AND target.id = ANY (ARRAY(SELECT id FROM free))
        AND free.last_seq < ours.seq
)
UPDATE oncegate_head AS target
SET state = CASE WHEN free.last_seq < ours.seq THEN 1 ELSE 2 END, holder = NULL,
    due_at = CASE WHEN free.id IS NULL THEN now + 50 WHEN free.last_seq < ours.seq THEN NULL
                  ELSE now END
FROM clock, ours LEFT JOIN free ON free.id = ours.lane
WHERE target.lane = ours.lane AND target.lane = ANY (ARRAY(SELECT lane FROM ours))

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    WITH ORDINALITY AS batch (lane, fence, holder, lease_ms, place) ORDER BY lane
),
held AS MATERIALIZED (
    SELECT wanted.* FROM wanted CROSS JOIN LATERAL (
        SELECT * FROM oncegate_head AS one
        WHERE one.lane = wanted.lane AND one.fence = wanted.fence AND one.holder = wanted.holder
            AND one.state = 3
        FOR NO KEY UPDATE OF one
    ) AS target
)
UPDATE oncegate_head AS target SET due_at = now + held.lease_ms
FROM clock, held WHERE target.lane = held.lane AND target.lane = ANY (ARRAY(SELECT lane FROM held))
RETURNING place::int

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::text[])
    WITH ORDINALITY AS batch (lane, fence, holder, retry_in_ms, counts, error, place) ORDER BY lane
),
held AS MATERIALIZED (
    SELECT wanted.*,
           (SELECT min(again.seq) FROM oncegate_replay AS again
            WHERE again.lane = target.lane AND target.replay IS NULL) AS begins
    FROM wanted CROSS JOIN LATERAL (
        SELECT * FROM oncegate_head AS one
        WHERE one.lane = wanted.lane AND one.fence = wanted.fence AND one.holder = wanted.holder
            AND one.state = 3
        FOR NO KEY UPDATE OF one
    ) AS target
)
UPDATE oncegate_head AS target
SET state = 2, holder = NULL, error = coalesce(held.error, target.error),
    replay = coalesce(begins, target.replay),
    attempt = CASE WHEN begins IS NULL THEN target.attempt + counts ELSE 0 END,
    due_at = now + CASE WHEN begins IS NULL THEN retry_in_ms ELSE 0 END
FROM clock, held WHERE target.lane = held.lane AND target.lane = ANY (ARRAY(SELECT lane FROM held))
RETURNING place::int

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
wanted AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[],
                         %s::bigint[])
    WITH ORDINALITY AS batch (lane, fence, holder, at, note, lease_ms, next_holder, place) ORDER BY lane
),
held AS MATERIALIZED (
    SELECT wanted.*, target.seq, target.replay, target.attempt, target.destination FROM wanted CROSS JOIN LATERAL (
        SELECT * FROM oncegate_head AS one
        WHERE one.lane = wanted.lane AND one.fence = wanted.fence AND one.holder = wanted.holder
            AND one.state = 3
        FOR NO KEY UPDATE OF one
    ) AS target
),
acked AS (
    INSERT INTO oncegate_ack (lane, seq, at, fence, attempts, note)
    SELECT lane, coalesce(replay, seq), at, fence, attempt + 1, note FROM held
    ON CONFLICT (lane, seq) DO UPDATE
    SET at = excluded.at, fence = excluded.fence, attempts = excluded.attempts, note = excluded.note
),
replayed AS (
    DELETE FROM oncegate_replay AS past USING held WHERE past.lane = held.lane AND past.seq = held.replay
    AND past.lane = ANY (ARRAY(SELECT lane FROM held WHERE replay IS NOT NULL))
    AND past.seq = ANY (ARRAY(SELECT replay FROM held WHERE replay IS NOT NULL))
),
alive AS (
    DELETE FROM oncegate_dead_letter AS past USING held WHERE past.lane = held.lane AND past.seq = held.replay
    AND past.lane = ANY (ARRAY(SELECT lane FROM held WHERE replay IS NOT NULL))
    AND past.seq = ANY (ARRAY(SELECT replay FROM held WHERE replay IS NOT NULL))
),

step AS MATERIALIZED (
    SELECT held.*, seq + (replay IS NULL)::int AS next_seq,
           (SELECT min(again.seq) FROM oncegate_replay AS again
            WHERE again.lane = held.lane AND again.seq > coalesce(held.replay, 0)) AS next_replay,
           lease_ms > 0 AND NOT EXISTS (SELECT 1 FROM oncegate_destination AS gate
    WHERE gate.id = held.destination AND (gate.state <> 1 OR gate.not_before > now)) AS may
    FROM held, clock
),
follow AS MATERIALIZED (
    SELECT step.*, body.lane IS NOT NULL AS present, body.event, body.type, body.payload, body.context,
           body.created_at,
           step.replay IS NOT NULL AND step.next_replay IS NULL AND (
               SELECT gone.seq FROM oncegate_dead_letter AS gone
               WHERE gone.lane = step.lane AND gone.seq = step.next_seq) IS NOT NULL AS dead
    FROM step LEFT JOIN LATERAL (
        SELECT lane, event, type, payload, context, created_at FROM oncegate_delivery AS one
        WHERE one.lane = step.lane AND one.seq = coalesce(step.next_replay, step.next_seq) LIMIT 1
    ) AS body
        ON true
),
free AS MATERIALIZED (
    SELECT lane.* FROM follow CROSS JOIN LATERAL (
        SELECT id, last_seq FROM oncegate_lane AS one WHERE one.id = follow.lane
        FOR NO KEY UPDATE OF one SKIP LOCKED
    ) AS lane WHERE NOT present
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
                      WHEN free.id IS NULL THEN now + 3
                      WHEN free.last_seq < next_seq THEN NULL
                      ELSE now END
    FROM clock, follow LEFT JOIN free ON free.id = follow.lane
    WHERE target.lane = follow.lane AND target.lane = ANY (ARRAY(SELECT lane FROM follow))
    RETURNING place, target.state, target.lane, target.fence, target.holder, target.replay, target.seq,
              target.attempt, target.due_at, follow.event, follow.type, follow.payload, follow.context,
              follow.created_at
)
SELECT head.place::int, head.state = 3, 
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
       ) END
FROM head CROSS JOIN LATERAL (
    SELECT destination, tenant, key FROM oncegate_lane AS one WHERE one.id = head.lane LIMIT 1
) AS lane


-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
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
    FROM wanted WHERE (SELECT id FROM oncegate_entry AS known WHERE known.key = wanted.key) IS NULL ORDER BY place
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
wanted AS MATERIALIZED (
    SELECT nextval('oncegate_number') AS number, batch.*
    FROM unnest(%s::bytea[], %s::int[], %s::int[], %s::bytea[], %s::text[], %s::bigint[], %s::bigint[],
                %s::bigint[], %s::bytea[], %s::int[], %s::int[], %s::int[], %s::text[], %s::bytea[], %s::text[], %s::text[])
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
    FROM wanted WHERE (SELECT id FROM oncegate_entry AS known WHERE known.key = wanted.key) IS NULL ORDER BY place
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
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

-- ====

WITH clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
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

-- ====

WITH due AS MATERIALIZED (
    SELECT id FROM oncegate_entry
    WHERE id = ANY(%s) AND surface = %s AND received_at < %s
      AND coalesce(settled_at, received_at) < %s
      AND (tenant = ANY(%s)) <> %s::boolean
      AND (state IN (2, 3) OR (%s::boolean AND (state = 4 AND NOT EXISTS (
    SELECT 1 FROM oncegate_step AS step WHERE step.entry = oncegate_entry.id AND step.state <> 3))))
    ORDER BY id FOR UPDATE SKIP LOCKED
)
DELETE FROM oncegate_entry AS entry USING due WHERE entry.id = due.id
RETURNING oncegate_month(entry.received_at), entry.id

-- ====

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

-- ====

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

-- ====

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

-- ====

WITH ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1
    RETURNING id, received_at, state, settled_at, reason
),
stored AS (
    INSERT INTO oncegate_payload (month, entry, body)
    SELECT oncegate_month(received_at), id, %s::bytea FROM ended
),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT oncegate_month(received_at), id, %s::bytea FROM ended
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, state, settled_at, %s::int, reason FROM ended
)
SELECT 1 / count(*) FROM ended

-- ====

WITH ended AS (
    UPDATE oncegate_entry SET state = 6, settled_at = %s, reason = %s, token = NULL
    WHERE id = %s AND fence = %s AND state IN (1, 4)
    RETURNING id
),
waiting AS (UPDATE oncegate_open SET state = 6 FROM ended WHERE entry = id)
INSERT INTO oncegate_log (entry, kind, at, actor, note) SELECT id, 6, %s, %s, %s FROM ended
RETURNING 1

-- ====

WITH fresh AS MATERIALIZED (
    SELECT id, row_number() OVER (ORDER BY id) AS place FROM (
        SELECT id FROM oncegate_feed WHERE tenant = %s AND position IS NULL ORDER BY id LIMIT %s
    ) AS oldest
),
numbered AS (
    UPDATE oncegate_feed AS event SET position = %s + fresh.place FROM fresh WHERE event.id = fresh.id
)
UPDATE oncegate_feed_tenant SET last = last + (SELECT count(*) FROM fresh) WHERE tenant = %s

-- ====

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

-- ====

WITH here AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM oncegate_meta WHERE name = 'ledger_id' AND value = %s::text) AS same, CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable), clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
wanted AS MATERIALIZED (
    SELECT * FROM unnest(ARRAY[%s::bigint], ARRAY[%s::bigint], ARRAY[%s::bigint], ARRAY[%s::int], ARRAY[%s::bigint], ARRAY[%s::int],
                         ARRAY[%s::text], ARRAY[%s::bytea], ARRAY[%s::bigint], ARRAY[%s::int], ARRAY[%s::bigint])
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

-- ====

WITH here AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM oncegate_meta WHERE name = 'ledger_id' AND value = %s::text) AS same, CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable), clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
wanted AS MATERIALIZED (
    SELECT * FROM unnest(ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::text], ARRAY[%s::text], ARRAY[%s::int], ARRAY[%s::bigint], ARRAY[%s::bytea],
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

-- ====

WITH here AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM oncegate_meta WHERE name = 'ledger_id' AND value = %s::text) AS same, CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable), clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
wanted AS MATERIALIZED (
    SELECT nextval('oncegate_number') AS number, batch.*
    FROM unnest(ARRAY[%s::bytea], ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::bytea], ARRAY[%s::text], ARRAY[%s::bigint], ARRAY[%s::bigint],
                ARRAY[%s::bigint], ARRAY[%s::bytea], ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::text])
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

-- ====

WITH here AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM oncegate_meta WHERE name = 'ledger_id' AND value = %s::text) AS same, CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable), clock AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now),
wanted AS MATERIALIZED (
    SELECT nextval('oncegate_number') AS number, batch.*
    FROM unnest(ARRAY[%s::bytea], ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::bytea], ARRAY[%s::text], ARRAY[%s::bigint], ARRAY[%s::bigint],
                ARRAY[%s::bigint], ARRAY[%s::bytea], ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::int], ARRAY[%s::text], ARRAY[%s::bytea], ARRAY[%s::text], ARRAY[%s::text])
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

-- ====

WITH here AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM oncegate_meta WHERE name = 'ledger_id' AND value = %s::text) AS same, CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable), ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1 AND (SELECT same FROM here)
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

-- ====

WITH here AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM oncegate_meta WHERE name = 'ledger_id' AND value = %s::text) AS same, CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable), ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1 AND (SELECT same FROM here)
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

-- ====

WITH here AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM oncegate_meta WHERE name = 'ledger_id' AND value = %s::text) AS same, CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END AS durable), ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1 AND (SELECT same FROM here)
    RETURNING id, received_at, state, settled_at, reason
),
closed AS (DELETE FROM oncegate_open WHERE entry = (SELECT id FROM ended)),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, state, settled_at, %s::int, reason FROM ended
)
SELECT same, EXISTS (SELECT 1 FROM ended), pg_current_xact_id()::text FROM here

-- ====

WITH old AS (
    DELETE FROM oncegate_tally WHERE (minute, surface, what) IN (
        SELECT minute, surface, what FROM oncegate_tally WHERE minute < %s AND minute %% 60 <> 0
        ORDER BY minute, surface, what LIMIT %s FOR UPDATE SKIP LOCKED
    ) RETURNING minute, surface, what, count, total
),
folded AS (
    INSERT INTO oncegate_tally AS tally (minute, surface, what, count, total)
    SELECT minute / 60 * 60, surface, what, sum(count), sum(total) FROM old
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (minute, surface, what)
    DO UPDATE SET count = tally.count + excluded.count, total = tally.total + excluded.total
)
SELECT count(*) FROM old

-- ====

WITH old AS MATERIALIZED (
    SELECT past.lane, past.seq FROM oncegate_delivery AS past
    JOIN oncegate_ack AS ack ON ack.lane = past.lane AND ack.seq = past.seq
    JOIN oncegate_head AS head ON head.lane = past.lane
    WHERE past.lane = %s AND past.seq < head.seq AND ack.at < %s
      AND NOT EXISTS (SELECT 1 FROM oncegate_replay AS again
                      WHERE again.lane = past.lane AND again.seq = past.seq)
      AND NOT EXISTS (SELECT 1 FROM oncegate_dead_letter AS dead
                      WHERE dead.lane = past.lane AND dead.seq = past.seq)
    ORDER BY past.seq LIMIT %s FOR UPDATE OF past SKIP LOCKED
),
forgotten AS (DELETE FROM oncegate_ack AS ack USING old WHERE ack.lane = old.lane AND ack.seq = old.seq),
tried AS (DELETE FROM oncegate_attempt AS a USING old WHERE a.lane = old.lane AND a.seq = old.seq)
DELETE FROM oncegate_delivery AS past USING old WHERE past.lane = old.lane AND past.seq = old.seq
RETURNING 1

-- ====

WITH opened AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved, declared)
    SELECT id, 1, now + %s::bigint, now, %s::int
    FROM oncegate_entry, (SELECT coalesce(%s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one)) AS now) AS clock
    WHERE id = %s::bigint AND state = 1
    RETURNING entry
)
INSERT INTO oncegate_payload (month, entry, body)
SELECT oncegate_month(%s::bigint), entry, %s::bytea FROM opened

-- ====

WITH ruled AS (
    UPDATE oncegate_entry
    SET state = %(state)s, fence = nextval('oncegate_number'), settled_at = %(at)s, reason = %(reason)s,
        attempt = CASE WHEN %(runs)s THEN 0 ELSE attempt END, token = NULL
    WHERE id = %(entry)s AND fence = %(fence)s AND key = %(key)s AND state = ANY(%(states)s)
    RETURNING id, received_at
),
opened AS (
    UPDATE oncegate_open SET state = %(state)s, retry_at = NULL, interruptions = NULL,
        tried_from = coalesce(%(ticks)s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one))
    FROM ruled WHERE entry = id AND %(runs)s
),
reopened AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved, declared, tried_from)
    SELECT id, %(state)s, now, now, %(declared)s, now
    FROM ruled, (SELECT coalesce(%(ticks)s::bigint, (SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks WHERE one))) AS clock (now) WHERE %(again)s
),
emptied AS (
    DELETE FROM oncegate_outcome USING ruled
    WHERE month = oncegate_month(received_at) AND entry = id AND %(again)s
),
closed AS (DELETE FROM oncegate_open USING ruled WHERE entry = id AND NOT %(runs)s),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT oncegate_month(received_at), id, %(outcome)s::bytea FROM ruled
    WHERE %(outcome)s::bytea IS NOT NULL
    ON CONFLICT (month, entry) DO UPDATE SET body = excluded.body
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, %(kind)s, %(at)s, %(actor)s, %(note)s FROM ruled
)
SELECT 1 FROM ruled

-- ====

WITH shorter AS (
    UPDATE oncegate_lane SET last_seq = last_seq - 1, idle = CASE idle WHEN 2 THEN 1 ELSE idle END
    WHERE id = %s RETURNING id, idle
)
UPDATE oncegate_head SET state = 1, due_at = NULL FROM shorter WHERE lane = shorter.id AND shorter.idle = 1

-- ====

WITH stopped AS (
    UPDATE oncegate_entry SET state = 7, settled_at = %s, reason = %s, token = NULL
    WHERE id = %s AND state IN (4, 6) RETURNING id
),
waiting AS (UPDATE oncegate_open SET state = 7 FROM stopped WHERE entry = id)
SELECT 1 FROM stopped

-- ====

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
