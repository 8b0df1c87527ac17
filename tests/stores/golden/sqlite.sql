DELETE FROM oncegate_ack WHERE delivery = ?
-- ====
DELETE FROM oncegate_attempt WHERE (lane, seq) IN (SELECT lane, seq FROM oncegate_delivery WHERE id = ?)
-- ====
DELETE FROM oncegate_attempt WHERE lane = ?1 AND seq = ?2 AND fence <= (SELECT fence FROM oncegate_attempt WHERE lane = ?1 AND seq = ?2 ORDER BY fence DESC LIMIT 1 OFFSET 10)
-- ====
DELETE FROM oncegate_content WHERE entry = ?
-- ====
DELETE FROM oncegate_dead_letter WHERE lane = ? AND seq = ?
-- ====
DELETE FROM oncegate_delivery WHERE id = ?
-- ====
DELETE FROM oncegate_duplicate WHERE entry = ?
-- ====
DELETE FROM oncegate_entry WHERE id = ? AND fence = ? AND token = ? AND state = 1 AND fence = id AND NOT EXISTS (SELECT 1 FROM oncegate_step WHERE entry = oncegate_entry.id)
-- ====
DELETE FROM oncegate_entry WHERE id = ? AND surface = ? AND received_at < ? AND coalesce(settled_at, received_at) < ? AND (tenant IN (SELECT value FROM json_each(?))) <> ? AND (state IN (2, 3) OR (? AND (state = 4 AND NOT EXISTS (
    SELECT 1 FROM oncegate_step AS step WHERE step.entry = oncegate_entry.id AND step.state <> 3)))) RETURNING id, fence
-- ====
DELETE FROM oncegate_lasting WHERE NOT EXISTS (SELECT 1 FROM oncegate_entry WHERE id = entry AND state = 1 AND fence = id)
-- ====
DELETE FROM oncegate_mutation WHERE number IN (SELECT number FROM oncegate_mutation WHERE at < ? AND number < (SELECT max(number) FROM oncegate_mutation) ORDER BY number LIMIT ?)
-- ====
DELETE FROM oncegate_name WHERE id = ? AND unused_since <= ? AND id < (SELECT max(id) FROM oncegate_name)
-- ====
DELETE FROM oncegate_notice WHERE kind = ?1 AND (until <= ?2 OR posted < (SELECT posted FROM oncegate_notice WHERE kind = ?1 ORDER BY posted DESC LIMIT 1 OFFSET ?3))
-- ====
DELETE FROM oncegate_outcome WHERE entry = ?
-- ====
DELETE FROM oncegate_payload WHERE entry = ?
-- ====
DELETE FROM oncegate_repeat WHERE entry = ?
-- ====
DELETE FROM oncegate_replay WHERE lane = ? AND seq = ?
-- ====
DELETE FROM oncegate_replay_order WHERE id <= ? AND NOT EXISTS (SELECT 1 FROM oncegate_replay AS again WHERE again.nonce = oncegate_replay_order.nonce)
-- ====
DELETE FROM oncegate_second WHERE entry = ?
-- ====
DELETE FROM oncegate_seen WHERE (surface, content) IN (SELECT surface, content FROM oncegate_seen WHERE at NOT BETWEEN ? AND ? LIMIT 4000)
-- ====
DELETE FROM oncegate_seen WHERE (surface, content) IN (SELECT surface, content FROM oncegate_seen WHERE surface = ?1 AND at < (SELECT at FROM oncegate_seen WHERE surface = ?1 ORDER BY at DESC LIMIT 1 OFFSET 19999) LIMIT 4000)
-- ====
DELETE FROM oncegate_seen_repeat WHERE at NOT BETWEEN ? AND ?
-- ====
DELETE FROM oncegate_seen_repeat WHERE surface = ?1 AND at < (SELECT at FROM oncegate_seen_repeat WHERE surface = ?1 ORDER BY at DESC LIMIT 1 OFFSET 255)
-- ====
DELETE FROM oncegate_step WHERE entry = ?
-- ====
DELETE FROM oncegate_tally WHERE (minute, surface, what) IN (SELECT minute, surface, what FROM oncegate_tally WHERE minute < ? LIMIT ?)
-- ====
DELETE FROM oncegate_tally WHERE minute = ? AND surface = ? AND what = ?
-- ====
DELETE FROM oncegate_target WHERE about IN (SELECT about FROM oncegate_target WHERE until < ? LIMIT ?)
-- ====
DELETE FROM oncegate_trace WHERE entry = ?
-- ====
INSERT INTO oncegate_content (entry, hash, target, compensation) VALUES (?, ?, ?, ?)
-- ====
INSERT INTO oncegate_delivery (lane, seq, destination, type, created_at, fingerprint, event, context, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
-- ====
INSERT INTO oncegate_destination (id, not_before) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET not_before = max(not_before, ?2)
-- ====
INSERT INTO oncegate_destination (id, state, since, reason) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (id) DO UPDATE SET state = ?2, since = ?3, reason = ?4, not_before = CASE ?2 WHEN 1 THEN 0 ELSE not_before END
-- ====
INSERT INTO oncegate_document (kind, name, version, body, changed_at) VALUES (?, ?, 1, ?, ?) ON CONFLICT (kind, name) DO UPDATE SET version = version + 1, body = excluded.body, changed_at = excluded.changed_at WHERE oncegate_document.body IS NULL
-- ====
INSERT INTO oncegate_duplicate (entry, other, flagged_at, undecided) VALUES (?, ?, ?, 1) ON CONFLICT (entry) DO NOTHING
-- ====
INSERT INTO oncegate_entry (key, surface, tenant, state, attempt, fingerprint, label, received_at, lease_until, first_reserved, token, declared, id, fence) VALUES (?1, ?2, ?3, 1, 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, (SELECT max(coalesce((SELECT max(id) FROM oncegate_entry), 0), (SELECT value FROM oncegate_meta WHERE name = 'floor'))) + 1, (SELECT max(coalesce((SELECT max(id) FROM oncegate_entry), 0), (SELECT value FROM oncegate_meta WHERE name = 'floor'))) + 1) ON CONFLICT (key) DO NOTHING
-- ====
INSERT INTO oncegate_entry (key, surface, tenant, state, attempt, fingerprint, label, received_at, lease_until, first_reserved, token, declared, id, fence) VALUES (?1, ?2, ?3, 1, 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11) ON CONFLICT (key) DO NOTHING
-- ====
INSERT INTO oncegate_entry (key, surface, tenant, state, attempt, fingerprint, label, received_at, settled_at, lease_until, first_reserved, token, reason, declared, id, fence) VALUES (?1, ?2, ?3, ?4, ?4 = 1, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, (SELECT max(coalesce((SELECT max(id) FROM oncegate_entry), 0), (SELECT value FROM oncegate_meta WHERE name = 'floor'))) + 1, (SELECT max(coalesce((SELECT max(id) FROM oncegate_entry), 0), (SELECT value FROM oncegate_meta WHERE name = 'floor'))) + 1) ON CONFLICT (key) DO NOTHING
-- ====
INSERT INTO oncegate_entry (key, surface, tenant, state, attempt, fingerprint, label, received_at, settled_at, lease_until, first_reserved, token, reason, declared, id, fence) VALUES (?1, ?2, ?3, ?4, ?4 = 1, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?14) ON CONFLICT (key) DO NOTHING
-- ====
INSERT INTO oncegate_feed (tenant, position, seq, at, event_id, key, fingerprint, body, context) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
-- ====
INSERT INTO oncegate_feed_key (tenant, key, seq) VALUES (?, ?, 1) ON CONFLICT (tenant, key) DO UPDATE SET seq = seq + 1 RETURNING seq
-- ====
INSERT INTO oncegate_feed_reader (tenant, reader, position, at) SELECT tenant, ?, ?, ? FROM oncegate_feed_tenant WHERE tenant = ? AND last >= ? ON CONFLICT (tenant, reader) DO UPDATE SET position = excluded.position, at = excluded.at WHERE excluded.position > position
-- ====
INSERT INTO oncegate_feed_tenant (tenant, last) VALUES (?, 0) ON CONFLICT (tenant) DO UPDATE SET last = last RETURNING last
-- ====
INSERT INTO oncegate_lane (destination, tenant, key, last_seq, seq, state, due_at, fence, attempt, touched_at) VALUES (?1, ?2, ?3, 1, 1, 2, ?4, 0, 0, ?4) ON CONFLICT (destination, tenant, key) DO UPDATE SET last_seq = last_seq + 1, state = CASE state WHEN 1 THEN 2 ELSE state END, due_at = CASE state WHEN 1 THEN ?4 ELSE due_at END RETURNING id, last_seq, last_seq - seq
-- ====
INSERT INTO oncegate_lasting (entry) SELECT id FROM oncegate_entry WHERE id > (SELECT value FROM oncegate_meta WHERE name = 'listed') AND id < ?1 AND state = 1 AND fence = id
-- ====
INSERT INTO oncegate_log (entry, kind, at, actor) VALUES (?, 2, ?, ?)
-- ====
INSERT INTO oncegate_log (position, entry, kind, at, actor) SELECT ?1 + (item.value & 4095), (item.value >> 28), 2, ?2 + ((item.value >> 12) & 65535), ?4 FROM json_each(?3) AS item
-- ====
INSERT INTO oncegate_log (position, entry, kind, at, actor, note) VALUES (?, ?, ?, ?, ?, ?)
-- ====
INSERT INTO oncegate_meta (name, value) VALUES ('scanned', ?) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)
-- ====
INSERT INTO oncegate_meta (name, value) VALUES ('schema_version', {number}) ON CONFLICT (name) DO UPDATE SET value = excluded.value;
-- ====
INSERT INTO oncegate_meta (name, value) VALUES ('sighting', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value
-- ====
INSERT INTO oncegate_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value
-- ====
INSERT INTO oncegate_mutation (entry, name, target, nth, before, after, done, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
-- ====
INSERT INTO oncegate_notice (kind, name, writer, body, told_at, posted, until) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (kind, name, writer) DO UPDATE SET body = excluded.body, told_at = excluded.told_at, posted = excluded.posted, until = excluded.until WHERE NOT ? OR oncegate_notice.until <= excluded.posted
-- ====
INSERT INTO oncegate_outcome (entry, body) SELECT id, ? FROM oncegate_entry WHERE id = ? AND fence = ? AND token = ? AND state = 2 ON CONFLICT (entry) DO NOTHING
-- ====
INSERT INTO oncegate_payload (entry, body) VALUES (?, ?)
-- ====
INSERT INTO oncegate_repeat (entry, class, first_at, last_at, times, evidence) SELECT id, ?, ?, ?, ?, ? FROM oncegate_entry WHERE id = ? ON CONFLICT (entry, class) DO UPDATE SET first_at = min(first_at, excluded.first_at), evidence = CASE WHEN excluded.last_at >= last_at THEN excluded.evidence ELSE evidence END, last_at = max(last_at, excluded.last_at), times = times + excluded.times
-- ====
INSERT INTO oncegate_replay (lane, seq, nonce) VALUES (?, ?, ?)
-- ====
INSERT INTO oncegate_replay_order (nonce, destination, tenant, lane, seq_from, seq_to, only_dead, at, actor, reason, deliveries, lanes, since, until, type) VALUES (?1, ?2, (SELECT tenant FROM oncegate_lane WHERE id = ?3), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) ON CONFLICT (nonce) DO UPDATE SET deliveries = deliveries + excluded.deliveries, lanes = lanes + excluded.lanes RETURNING id
-- ====
INSERT INTO oncegate_second (about, target, step, place, entry, resource, other, other_resource, found_at) SELECT ?1, ?2, ?3, ?4, id, ?5, ?6, ?7, ?8 FROM oncegate_entry WHERE id = ?9 AND NOT EXISTS (SELECT 1 FROM oncegate_second WHERE about = ?1 AND resource = ?7 AND other_resource = ?5) ON CONFLICT (about, resource) DO NOTHING
-- ====
INSERT INTO oncegate_seen (surface, content, entry, at, shared_by) VALUES (?, ?, ?, ?, ?) ON CONFLICT (surface, content) DO UPDATE SET entry = excluded.entry, at = excluded.at, shared_by = excluded.shared_by
-- ====
INSERT INTO oncegate_tally (minute, surface, what, count, total) VALUES (?, ?, ?, ?, ?) ON CONFLICT (minute, surface, what) DO UPDATE SET count = count + excluded.count, total = total + excluded.total
-- ====

INSERT INTO oncegate_target AS known (about, entry, resource, until) VALUES (?, ?, ?, ?)
ON CONFLICT (about) DO UPDATE SET
    before_entry = CASE WHEN known.resource <> excluded.resource THEN known.entry END,
    before_resource = known.resource, before_until = known.until,
    entry = excluded.entry, resource = excluded.resource, until = max(known.until, excluded.until)
RETURNING before_entry, before_resource, before_until

-- ====

INSERT INTO oncegate_trace (entry, trace, context) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- ====
INSERT OR IGNORE INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error) VALUES (?, ?, ?, ?, ?, ?)
-- ====
INSERT OR IGNORE INTO oncegate_seen_repeat (surface, at, entry, first_at, fresh) VALUES (?, ?, ?, ?, ?)
-- ====
INSERT OR REPLACE INTO oncegate_ack (delivery, at, fence, attempts, note) SELECT id, ?, ?, ?, ? FROM oncegate_delivery WHERE lane = ? AND seq = ?
-- ====
INSERT OR REPLACE INTO oncegate_attempt (lane, seq, fence, at, took, status, error) VALUES (?, ?, ?, ?, ?, ?, ?)
-- ====
INSERT OR REPLACE INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error) VALUES (?, ?, ?, ?, ?, ?)
-- ====
INSERT OR REPLACE INTO oncegate_outcome (entry, body) SELECT log.entry, substr(?2, item.value >> 28, item.value & 268435455) FROM json_each(?3) AS item JOIN oncegate_log AS log ON log.position = ?1 + item.key WHERE item.value > 0
-- ====
INSERT OR REPLACE INTO oncegate_outcome (entry, body) VALUES (?, ?)
-- ====
INSERT OR REPLACE INTO oncegate_step (entry, name, state, downstream, result, resource, started_at, declared, last_call, first_call) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
-- ====
SELECT (SELECT received_at FROM oncegate_entry ORDER BY id DESC LIMIT 1)
-- ====
SELECT 1 FROM oncegate_dead_letter WHERE lane = ? AND seq = ?
-- ====
SELECT 1 FROM oncegate_delivery AS event WHERE lane = ?1 AND seq = ?2 AND event.event = ?4 AND ( EXISTS (SELECT 1 FROM oncegate_lane WHERE id = ?1 AND fence = ?3 AND state <> 3) OR EXISTS (SELECT 1 FROM oncegate_ack WHERE delivery = event.id AND fence = ?3) OR EXISTS (SELECT 1 FROM oncegate_dead_letter WHERE lane = ?1 AND seq = ?2 AND fence = ?3))
-- ====
SELECT 1 FROM oncegate_destination WHERE id = ? AND (state <> 1 OR not_before > ?)
-- ====
SELECT 1 FROM oncegate_duplicate WHERE entry = ? AND other = ? AND undecided = 1
-- ====
SELECT 1 FROM oncegate_entry WHERE id = ? AND fence = ? AND token = ? AND state = 1
-- ====
SELECT 1 FROM oncegate_entry WHERE id = ? AND fence = ? AND token = ? AND state = 2
-- ====
SELECT 1 FROM oncegate_entry WHERE id = ? AND state IN (2, 3)
-- ====
SELECT 1 FROM oncegate_replay WHERE lane = ? LIMIT 1
-- ====
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'oncegate_meta'
-- ====
SELECT at, entry, first_at, fresh FROM oncegate_seen_repeat WHERE surface = ? AND at BETWEEN ? AND ? ORDER BY at DESC, entry DESC LIMIT 256
-- ====
SELECT cancelled_at IS NOT NULL FROM oncegate_replay_order WHERE nonce = ?
-- ====
SELECT coalesce(max(number), 0) FROM oncegate_mutation
-- ====
SELECT coalesce(max(position), 0) FROM oncegate_log
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
SELECT coalesce(sum(last_seq - seq + 1), 0) FROM oncegate_lane INDEXED BY oncegate_lane_open WHERE state <> 1 AND destination = ?
-- ====
SELECT count(*) FROM (SELECT 1 FROM oncegate_log WHERE entry = ? AND kind <> 2 AND kind = 8 LIMIT ?)
-- ====
SELECT count(*), coalesce(sum(length(body)), 0) FROM oncegate_entry INDEXED BY oncegate_entry_open LEFT JOIN oncegate_payload ON entry = id WHERE state NOT IN (2, 3) AND (state <> 1 OR fence <> id) AND state IN (5, 6, 7) AND surface = ?1 AND (?3 OR tenant = ?2)
-- ====
SELECT dead.lane, dead.seq, lane.destination, lane.tenant, lane.key, past.event, past.type, past.created_at, dead.at, dead.attempts, dead.error, dead.seq = coalesce(lane.replay, lane.seq) FROM oncegate_dead_letter AS dead JOIN oncegate_lane AS lane ON lane.id = dead.lane JOIN oncegate_delivery AS past ON past.lane = dead.lane AND past.seq = dead.seq WHERE (dead.lane, dead.seq) > (?, ?){where} ORDER BY dead.lane, dead.seq LIMIT ?
-- ====
SELECT destination, tenant, key, seq, replay, attempt, due_at, last_seq FROM oncegate_lane WHERE id = ? AND fence = ? AND holder = ? AND state = 3
-- ====
SELECT destination, tenant, key, seq, replay, attempt, due_at, last_seq, state, fence FROM oncegate_lane WHERE id = ?
-- ====
SELECT entry, class, oncegate_repeat.first_at, last_at, times, evidence FROM oncegate_repeat JOIN oncegate_entry ON oncegate_entry.id = entry JOIN oncegate_name AS name ON name.id = surface WHERE class IN (4, 5, 6, 7) AND (? IS NULL OR name.text = ?) ORDER BY last_at DESC LIMIT ?
-- ====
SELECT entry, class, oncegate_repeat.first_at, last_at, times, evidence FROM oncegate_repeat WHERE entry = ? ORDER BY first_at, class
-- ====

SELECT entry, other FROM oncegate_duplicate WHERE dismissed_at IS NULL AND entry > ?
ORDER BY entry LIMIT ?

-- ====
SELECT entry, other FROM oncegate_duplicate WHERE undecided = 1 ORDER BY entry LIMIT ?
-- ====

SELECT entry, trace, context FROM oncegate_trace
WHERE entry = ?

-- ====

SELECT entry.id, entry.surface, entry.received_at, CAST(payload.body AS BLOB), CAST(outcome.body AS BLOB)
FROM json_each(?) AS item
CROSS JOIN oncegate_entry AS entry ON entry.id = item.value
LEFT JOIN oncegate_payload AS payload ON payload.entry = entry.id
LEFT JOIN oncegate_outcome AS outcome ON outcome.entry = entry.id

-- ====

SELECT entry.received_at FROM oncegate_content AS content
JOIN oncegate_entry AS entry ON entry.id = content.entry
WHERE content.entry > ? ORDER BY content.entry LIMIT 1

-- ====

SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND equal.entry < mine.entry
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1

-- ====
SELECT event, type, payload, context, created_at FROM oncegate_delivery WHERE lane = ? AND seq = ?
-- ====
SELECT fingerprint, seq FROM oncegate_feed WHERE tenant = ? AND event_id = ?
-- ====
SELECT floor, last FROM oncegate_feed_tenant WHERE tenant = ?
-- ====

SELECT found.entry, found.earlier, later.state, abs(later.received_at - before.received_at)
FROM (
    SELECT content.entry AS entry, (
        SELECT equal.entry FROM oncegate_content AS equal
        WHERE equal.hash = content.hash AND equal.entry < content.entry
          AND (SELECT state FROM oncegate_entry WHERE id = equal.entry) <> 3
        ORDER BY equal.entry DESC LIMIT 1
    ) AS earlier
    FROM oncegate_content AS content WHERE content.entry > ? ORDER BY content.entry LIMIT ?
) AS found
LEFT JOIN oncegate_entry AS later ON later.id = found.entry AND found.earlier IS NOT NULL
LEFT JOIN oncegate_entry AS before ON before.id = found.earlier
ORDER BY found.entry

-- ====
SELECT holder, destination, id, tenant, key, coalesce(replay, seq), replay, fence, attempt, due_at FROM oncegate_lane INDEXED BY oncegate_lane_open WHERE state <> 1 AND state = 3
-- ====
SELECT id FROM oncegate_entry WHERE id BETWEEN ? AND ?
-- ====
SELECT id, destination FROM oncegate_lane WHERE id > ? ORDER BY id LIMIT ?
-- ====
SELECT id, destination, seq, replay, state FROM oncegate_lane WHERE id = ?
-- ====
SELECT id, destination, seq, replay, state FROM oncegate_lane WHERE id > ? ORDER BY id LIMIT ?
-- ====
SELECT id, destination, tenant, key FROM oncegate_lane WHERE id = ?
-- ====
SELECT id, nonce, destination, tenant, (SELECT key FROM oncegate_lane WHERE id = listed.lane), seq_from, seq_to, only_dead, at, actor, reason, deliveries, lanes, (SELECT count(*) FROM (SELECT 1 FROM oncegate_replay AS again WHERE again.nonce = listed.nonce LIMIT 100001)), taken_back, cancelled_at, cancelled_by, cancelled_why, since, until, type FROM (SELECT * FROM oncegate_replay_order AS replayed WHERE {where} ORDER BY {id} DESC LIMIT ?) AS listed ORDER BY id DESC
-- ====
SELECT id, state, fingerprint, attempt, fence, coalesce(lease_until, 0), reason, first_reserved, received_at, body, declared, coalesce(retry_at, 0), coalesce(interruptions, 0), coalesce(tried_from, 0) FROM oncegate_entry LEFT JOIN oncegate_outcome ON entry = id WHERE key = ?
-- ====
SELECT id, state, reason, since, not_before FROM oncegate_destination
-- ====
SELECT id, surface, CASE WHEN (state = 4 AND NOT EXISTS (
    SELECT 1 FROM oncegate_step AS step WHERE step.entry = oncegate_entry.id AND step.state <> 3)) THEN -4 ELSE state END, received_at, coalesce(settled_at, received_at), tenant FROM oncegate_entry WHERE id > ? ORDER BY id LIMIT ?
-- ====
SELECT id, tenant, key, coalesce(replay, seq), replay, fence, attempt FROM oncegate_lane WHERE destination = ? AND due_at <= ? ORDER BY due_at LIMIT ?
-- ====

SELECT id, unused_since FROM oncegate_name
WHERE id NOT IN (SELECT surface FROM oncegate_entry WHERE surface IS NOT NULL UNION SELECT tenant FROM oncegate_entry WHERE tenant IS NOT NULL UNION SELECT downstream FROM oncegate_step WHERE downstream IS NOT NULL UNION SELECT declared FROM oncegate_step WHERE declared IS NOT NULL UNION SELECT actor FROM oncegate_log WHERE actor IS NOT NULL UNION SELECT tenant FROM oncegate_feed_tenant WHERE tenant IS NOT NULL UNION SELECT tenant FROM oncegate_feed_key WHERE tenant IS NOT NULL UNION SELECT tenant FROM oncegate_feed WHERE tenant IS NOT NULL UNION SELECT tenant FROM oncegate_feed_reader WHERE tenant IS NOT NULL UNION SELECT id FROM oncegate_destination WHERE id IS NOT NULL UNION SELECT destination FROM oncegate_lane WHERE destination IS NOT NULL UNION SELECT tenant FROM oncegate_lane WHERE tenant IS NOT NULL UNION SELECT destination FROM oncegate_delivery WHERE destination IS NOT NULL UNION SELECT type FROM oncegate_delivery WHERE type IS NOT NULL UNION SELECT surface FROM oncegate_tally WHERE surface IS NOT NULL UNION SELECT dismissed_by FROM oncegate_duplicate WHERE dismissed_by IS NOT NULL UNION SELECT destination FROM oncegate_replay_order WHERE destination IS NOT NULL UNION SELECT tenant FROM oncegate_replay_order WHERE tenant IS NOT NULL UNION SELECT surface FROM oncegate_seen WHERE surface IS NOT NULL UNION SELECT surface FROM oncegate_seen_repeat WHERE surface IS NOT NULL UNION SELECT dismissed_by FROM oncegate_second WHERE dismissed_by IS NOT NULL UNION SELECT declared FROM oncegate_entry WHERE declared IS NOT NULL)
  AND (SELECT count(*) FROM (SELECT 1 FROM oncegate_name LIMIT ?1 + 1)) > ?1
ORDER BY id LIMIT ?2

-- ====
SELECT id, unused_since FROM oncegate_name WHERE text = ?
-- ====
SELECT kind, name, version, body, changed_at FROM oncegate_document WHERE kind = ? AND body IS NOT NULL ORDER BY name
-- ====
SELECT kind, name, version, body, changed_at FROM oncegate_document WHERE kind = ? AND name = ? AND body IS NOT NULL
-- ====
SELECT kind, name, writer, body, told_at, max(0, ?1 - posted) FROM oncegate_notice WHERE kind = ?2 AND (?3 IS NULL OR name = ?3) AND until > ?1 ORDER BY name, writer
-- ====
SELECT lane, seq FROM oncegate_delivery WHERE id = ?
-- ====
SELECT lane, seq, fence, at, took, status, error FROM oncegate_attempt WHERE lane = ? AND seq = ? ORDER BY fence
-- ====
SELECT lane, seq, fingerprint FROM oncegate_delivery WHERE destination = ? AND event = ?
-- ====
SELECT lane.destination, count(*) FROM oncegate_dead_letter AS dead JOIN oncegate_lane AS lane ON lane.id = dead.lane GROUP BY lane.destination
-- ====
SELECT lane.destination, sum(lane.state = 2), sum(lane.state = 3), sum(lane.state = 4), sum(lane.last_seq - lane.seq + 1), min(head.created_at), min(dead.at) FILTER (WHERE lane.state = 4) FROM oncegate_lane AS lane INDEXED BY oncegate_lane_open LEFT JOIN oncegate_delivery AS head ON head.lane = lane.id AND head.seq = lane.seq LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = lane.id AND dead.seq = lane.seq WHERE lane.state <> 1 GROUP BY lane.destination
-- ====
SELECT lane.id, lane.destination, lane.tenant, lane.key, lane.state, lane.seq, lane.last_seq, lane.attempt, lane.error, lane.due_at, head.created_at, lane.replay FROM oncegate_lane AS lane{index} LEFT JOIN oncegate_delivery AS head ON head.lane = lane.id AND head.seq = lane.seq
-- ====

SELECT link.entry
FROM (SELECT entry FROM oncegate_trace
  WHERE trace = ? ) AS link
LEFT JOIN oncegate_entry AS entry ON entry.id = link.entry
WHERE (CAST(? AS text) IS NULL OR entry.tenant = (SELECT id FROM oncegate_name
    WHERE text = CAST(? AS text)))
ORDER BY row_number() OVER (PARTITION BY entry.tenant
  ORDER BY link.entry), link.entry LIMIT ?

-- ====
SELECT max((SELECT coalesce(max(max(coalesce(lease_until, 0), coalesce(first_reserved, 0))), 0) FROM (SELECT lease_until, first_reserved FROM oncegate_entry INDEXED BY oncegate_entry_open WHERE state NOT IN (2, 3) AND (state <> 1 OR fence <> id) UNION ALL SELECT lease_until, first_reserved FROM oncegate_entry WHERE id > (SELECT value FROM oncegate_meta WHERE name = 'listed') AND state = 1 AND fence = id UNION ALL SELECT lease_until, first_reserved FROM oncegate_lasting CROSS JOIN oncegate_entry ON id = entry WHERE state = 1 AND fence = id)), (SELECT coalesce(max(CASE state WHEN 3 THEN due_at ELSE touched_at END), 0) FROM oncegate_lane))
-- ====
SELECT max(coalesce((SELECT max(id) FROM oncegate_entry), 0), (SELECT value FROM oncegate_meta WHERE name = 'floor'))
-- ====
SELECT max(seq) FROM oncegate_dead_letter AS dead WHERE lane = ?1 AND seq < ?2 AND NOT EXISTS (SELECT 1 FROM oncegate_dead_letter AS earlier WHERE lane = ?1 AND earlier.seq = dead.seq - 1)
-- ====
SELECT min(due_at) FROM oncegate_lane WHERE destination = ? AND due_at > ?
-- ====
SELECT min(seq) FROM oncegate_replay WHERE lane = ? AND seq > ?
-- ====
SELECT minute, surface, what, count, total FROM oncegate_tally WHERE minute < ? AND minute % 60 <> 0 LIMIT ?
-- ====
SELECT name, state, downstream, result, resource, started_at, declared, last_call, first_call FROM oncegate_step WHERE entry = ?
-- ====
SELECT name, value FROM oncegate_meta WHERE name IN ('boot', 'ticks_offset')
-- ====
SELECT name, value FROM oncegate_meta WHERE name IN ('schema_version', 'schema', 'moved')
-- ====

SELECT name.text, count(*), min(pair.flagged_at)
FROM oncegate_duplicate AS pair INDEXED BY oncegate_duplicate_open
CROSS JOIN oncegate_entry AS later ON later.id = pair.entry AND later.state = 2
JOIN oncegate_name AS name ON name.id = later.surface
WHERE pair.dismissed_at IS NULL AND EXISTS (
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND equal.entry < mine.entry
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1
) GROUP BY name.text ORDER BY name.text

-- ====

SELECT name.text, state, 
CASE WHEN state = 7 AND instr(reason, ':') BETWEEN 2 AND 40 THEN substr(reason, 1, instr(reason, ':') - 1)
     WHEN state = 7 THEN 'other'
     WHEN state IN (5, 6) AND reason LIKE 'gave up after %' THEN 'attempts_used_up'
     WHEN state IN (5, 6) AND reason LIKE '% resources for %' THEN 'two_resources'
     WHEN state = 6 AND reason LIKE '%approv%' THEN 'approval'
     WHEN state IN (5, 6) THEN 'in_doubt'
     ELSE '' END
 AS kind, 
CASE WHEN state = 6 AND reason LIKE 'waits for approval, to be decided within %'
     THEN substr(reason, 42) END
 AS within, count(*),
       min(CASE state WHEN 1 THEN first_reserved ELSE lease_until END),
       min(coalesce(settled_at, received_at)), sum(state = 1 AND lease_until <= ?1),
       max(CASE WHEN state = 4 AND attempt > 0 THEN max(0, settled_at - received_at) ELSE 0 END)
FROM (SELECT surface, state, reason, lease_until, first_reserved, settled_at, received_at, attempt FROM oncegate_entry INDEXED BY oncegate_entry_open WHERE state NOT IN (2, 3) AND (state <> 1 OR fence <> id) AND (?2 IS NULL OR (state = 1) = ?2) UNION ALL SELECT surface, state, reason, lease_until, first_reserved, settled_at, received_at, attempt FROM oncegate_entry WHERE id > (SELECT value FROM oncegate_meta WHERE name = 'listed') AND state = 1 AND fence = id AND (?2 IS NULL OR (state = 1) = ?2) UNION ALL SELECT surface, state, reason, lease_until, first_reserved, settled_at, received_at, attempt FROM oncegate_lasting CROSS JOIN oncegate_entry ON id = entry WHERE state = 1 AND fence = id AND (?2 IS NULL OR (state = 1) = ?2))
JOIN oncegate_name AS name ON name.id = surface GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4

-- ====
SELECT name.text, state, count(*) FROM oncegate_entry JOIN oncegate_name AS name ON name.id = surface GROUP BY name.text, state ORDER BY name.text, state
-- ====
SELECT nonce FROM oncegate_replay WHERE lane = ? AND seq = ?
-- ====
SELECT not_before FROM oncegate_destination WHERE id = ? AND state = 1
-- ====
SELECT number, entry, name, target, nth, before, after, done, at FROM oncegate_mutation WHERE number > ? ORDER BY number LIMIT ?
-- ====

SELECT pair.entry, pair.other, coalesce(content.target, ''), content.compensation, pair.flagged_at,
       pair.dismissed_at, pair.dismissed_by, pair.note,
       CASE WHEN later.id IS NOT NULL THEN (
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND equal.entry < mine.entry
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
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND equal.entry < mine.entry
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1
) END
FROM oncegate_duplicate AS pair LEFT JOIN oncegate_content AS content ON content.entry = pair.entry
LEFT JOIN oncegate_entry AS later ON later.id = pair.entry AND later.state = 2
WHERE  pair.dismissed_at IS NULL AND pair.entry > ?
AND (NOT ? OR (later.id IS NOT NULL AND EXISTS (
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND equal.entry < mine.entry
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1
)))
AND (? IS NULL OR ? = (SELECT name.text FROM oncegate_entry AS half
                      JOIN oncegate_name AS name ON name.id = half.surface WHERE half.id = pair.entry))
ORDER BY pair.entry LIMIT ?
-- ====

SELECT pair.entry, pair.other, coalesce(content.target, ''), content.compensation, pair.flagged_at,
       pair.dismissed_at, pair.dismissed_by, pair.note,
       CASE WHEN later.id IS NOT NULL THEN (
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND equal.entry < mine.entry
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= 259200000)
ORDER BY equal.entry DESC LIMIT 1
) END
FROM oncegate_duplicate AS pair LEFT JOIN oncegate_content AS content ON content.entry = pair.entry
LEFT JOIN oncegate_entry AS later ON later.id = pair.entry AND later.state = 2
WHERE  pair.entry < ? AND (? OR pair.dismissed_at IS NULL) ORDER BY pair.entry DESC LIMIT ?
-- ====
SELECT past.id FROM oncegate_delivery AS past JOIN oncegate_ack AS ack ON ack.delivery = past.id JOIN oncegate_lane AS lane ON lane.id = past.lane WHERE past.lane = ?1 AND past.seq < lane.seq AND ack.at < ?2 AND NOT EXISTS (SELECT 1 FROM oncegate_replay AS r WHERE r.lane = ?1 AND r.seq = past.seq) AND NOT EXISTS (SELECT 1 FROM oncegate_dead_letter AS d WHERE d.lane = ?1 AND d.seq = past.seq) ORDER BY past.seq LIMIT ?3
-- ====

SELECT past.lane, past.seq, destination.text, tenant.text, lane.key, past.event, kind.text,
    past.created_at, past.context, lane.seq, ack.at, coalesce(ack.attempts, dead.attempts, 0),
    coalesce(dead.error, ack.note), dead.seq IS NOT NULL
FROM (SELECT sent.* FROM oncegate_delivery AS sent
  JOIN oncegate_lane AS owner ON owner.id = sent.lane
  WHERE substr(sent.context, 14, 32) = ?
  AND substr(sent.context, 1, 13) = x'7b2274726163655f6964223a22'
  AND (CAST(? AS text) IS NULL OR owner.tenant = (SELECT id FROM oncegate_name
      WHERE text = CAST(? AS text)))
  ORDER BY row_number() OVER (PARTITION BY owner.tenant
    ORDER BY sent.created_at, sent.lane, sent.seq), sent.created_at, sent.lane,
        sent.seq LIMIT ?) AS past
JOIN oncegate_lane AS lane ON lane.id = past.lane
JOIN oncegate_name AS destination ON destination.id = past.destination
JOIN oncegate_name AS tenant ON tenant.id = lane.tenant
JOIN oncegate_name AS kind ON kind.id = past.type
LEFT JOIN oncegate_ack AS ack ON ack.delivery = past.id
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq
ORDER BY past.created_at, past.lane, past.seq

-- ====

SELECT past.lane, past.seq, destination.text, tenant.text, lane.key, past.event, kind.text,
    past.created_at, past.context, lane.seq, ack.at, coalesce(ack.attempts, dead.attempts, 0),
    coalesce(dead.error, ack.note), dead.seq IS NOT NULL
FROM (SELECT sent.* FROM oncegate_delivery AS sent
  WHERE sent.destination IN (WITH RECURSIVE named (number) AS (SELECT min(destination) FROM
      oncegate_lane
      UNION ALL SELECT (SELECT min(destination) FROM oncegate_lane
        WHERE destination > number) FROM named
      WHERE number IS NOT NULL) SELECT number FROM named
    WHERE number IS NOT NULL)
  AND sent.event = ?
  ORDER BY sent.created_at, sent.lane, sent.seq LIMIT ?) AS past
JOIN oncegate_lane AS lane ON lane.id = past.lane
JOIN oncegate_name AS destination ON destination.id = past.destination
JOIN oncegate_name AS tenant ON tenant.id = lane.tenant
JOIN oncegate_name AS kind ON kind.id = past.type
LEFT JOIN oncegate_ack AS ack ON ack.delivery = past.id
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq
ORDER BY past.created_at, past.lane, past.seq

-- ====
SELECT past.lane, past.seq, past.event, past.type, past.created_at, ack.at, coalesce(ack.attempts, dead.attempts, 0), coalesce(dead.error, ack.note), dead.seq IS NOT NULL FROM oncegate_delivery AS past LEFT JOIN oncegate_ack AS ack ON ack.delivery = past.id LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq WHERE past.lane = ? AND past.seq >= ? ORDER BY past.seq LIMIT ?
-- ====
SELECT position FROM oncegate_feed_reader WHERE tenant = ? AND reader = ?
-- ====
SELECT position, at FROM oncegate_feed WHERE tenant = ? AND position > ? ORDER BY position LIMIT ?
-- ====
SELECT position, entry, kind, at, actor, note FROM oncegate_log WHERE entry = ? AND kind <> 2 UNION ALL SELECT position, entry, kind, at, actor, note FROM oncegate_log WHERE entry = ? AND kind = 2 AND position = (SELECT record FROM oncegate_entry WHERE id = ?) ORDER BY position
-- ====
SELECT position, entry, kind, at, actor, note FROM oncegate_log{where} ORDER BY position DESC LIMIT ?
-- ====
SELECT position, event_id, key, seq, body, at, coalesce(context, x'') FROM oncegate_feed WHERE tenant = ? AND event_id = ?
-- ====
SELECT position, event_id, key, seq, body, at, coalesce(context, x'') FROM oncegate_feed WHERE tenant = ? AND position > ? ORDER BY position LIMIT ?
-- ====
SELECT reader.tenant, reader.reader, reader.position, reader.at, ends.last - max(reader.position, ends.floor), (SELECT at FROM oncegate_feed AS event WHERE event.tenant = reader.tenant AND event.position > reader.position ORDER BY event.position LIMIT 1) FROM oncegate_feed_reader AS reader JOIN oncegate_feed_tenant AS ends ON ends.tenant = reader.tenant
-- ====
SELECT replay.lane, replay.seq FROM oncegate_replay AS replay JOIN oncegate_lane AS lane ON lane.id = replay.lane WHERE nonce = ? AND NOT (lane.state = 3 AND lane.replay IS replay.seq)
-- ====

SELECT second.id, coalesce(name.text, ''), second.target, second.step, second.place, second.entry,
       second.resource, second.other, second.other_resource, second.found_at, later.state,
       coalesce(person.text, ''), coalesce(second.note, '')
FROM oncegate_second AS second
LEFT JOIN oncegate_entry AS later ON later.id = second.entry
LEFT JOIN oncegate_name AS name ON name.id = later.surface
LEFT JOIN oncegate_name AS person ON person.id = second.dismissed_by
WHERE second.dismissed_at IS NULL AND second.id > ? ORDER BY second.id LIMIT ?

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
SELECT seq FROM oncegate_delivery AS past WHERE lane = ?1 AND seq BETWEEN ?2 AND ?3 AND (NOT ?4 OR EXISTS (SELECT 1 FROM oncegate_dead_letter WHERE lane = ?1 AND seq = past.seq)) AND (?6 IS NULL OR created_at >= ?6) AND (?7 IS NULL OR created_at < ?7) AND (?8 IS NULL OR type = ?8) ORDER BY seq LIMIT ?5
-- ====
SELECT seq FROM oncegate_position WHERE lane = ?
-- ====
SELECT state, not_before FROM oncegate_destination WHERE id = ?
-- ====
SELECT state, reason FROM oncegate_entry WHERE id = ?
-- ====

SELECT tenant.text, past.key, past.seq, past.event_id, past.at, past.context
FROM (SELECT * FROM oncegate_feed AS sent
  WHERE sent.tenant IN (WITH RECURSIVE named (number) AS (SELECT min(tenant) FROM oncegate_feed_key
      UNION ALL SELECT (SELECT min(tenant) FROM oncegate_feed_key
        WHERE tenant > number) FROM named
      WHERE number IS NOT NULL) SELECT number FROM named
    WHERE number IS NOT NULL)
  AND sent.event_id = ?
  ORDER BY sent.at, sent.tenant, sent.seq LIMIT ?) AS past
JOIN oncegate_name AS tenant ON tenant.id = past.tenant
ORDER BY past.at, past.tenant, past.seq

-- ====

SELECT tenant.text, past.key, past.seq, past.event_id, past.at, past.context
FROM (SELECT * FROM oncegate_feed AS sent
  WHERE substr(sent.context, 14, 32) = ?
  AND substr(sent.context, 1, 13) = x'7b2274726163655f6964223a22'
  AND (CAST(? AS text) IS NULL OR sent.tenant = (SELECT id FROM oncegate_name
      WHERE text = CAST(? AS text)))
  ORDER BY row_number() OVER (PARTITION BY sent.tenant
    ORDER BY sent.at, sent.tenant, sent.seq), sent.at, sent.tenant, sent.seq LIMIT ?) AS past
JOIN oncegate_name AS tenant ON tenant.id = past.tenant
ORDER BY past.at, past.tenant, past.seq

-- ====
SELECT text, ?, what, sum(count), sum(total) FROM oncegate_tally JOIN oncegate_name ON id = surface WHERE minute >= ? AND minute < ? GROUP BY text, what ORDER BY text, what
-- ====
SELECT text, minute, what, count, total FROM oncegate_tally JOIN oncegate_name ON id = surface WHERE minute >= ? AND minute < ? AND (? IS NULL OR text = ?) ORDER BY minute, text, what
-- ====
SELECT type, name FROM sqlite_master WHERE name GLOB 'oncegate_*'
-- ====
SELECT value FROM oncegate_meta WHERE name = 'scanned'
-- ====
SELECT value FROM oncegate_meta WHERE name = 'sighting'
-- ====
SELECT {columns} FROM oncegate_entry INDEXED BY oncegate_entry_open WHERE state NOT IN (2, 3) AND (state <> 1 OR fence <> id){where} UNION ALL SELECT {columns} FROM oncegate_entry WHERE id > (SELECT value FROM oncegate_meta WHERE name = 'listed') AND state = 1 AND fence = id{where} UNION ALL SELECT {columns} FROM oncegate_lasting CROSS JOIN oncegate_entry ON id = entry WHERE state = 1 AND fence = id{where}
-- ====
UPDATE oncegate_content SET target = '' WHERE entry = ?
-- ====
UPDATE oncegate_delivery SET payload = ?1 WHERE 
substr(CAST(context AS TEXT), instr(CAST(context AS TEXT), '"cause":"') + 9, 48) IN (
    SELECT lower(hex(key)) FROM oncegate_entry WHERE id IN (SELECT value FROM json_each(?2)))
 AND id IN (SELECT delivery FROM oncegate_ack)
-- ====
UPDATE oncegate_document SET version = version + 1, body = ?, changed_at = ? WHERE kind = ? AND name = ? AND version = ? AND body IS NOT NULL
-- ====
UPDATE oncegate_duplicate SET dismissed_at = ?, dismissed_by = ?, note = ?, undecided = 0 WHERE entry = ? AND dismissed_at IS NULL
-- ====
UPDATE oncegate_duplicate SET undecided = ? WHERE entry = ?
-- ====
UPDATE oncegate_entry AS entry SET record = ?1 + (item.value & 4095), state = 2, settled_at = ?2 + ((item.value >> 12) & 65535), reason = NULL, lease_until = NULL, first_reserved = NULL FROM json_each(?3) AS item WHERE entry.id = (item.value >> 28) AND entry.fence = entry.id AND entry.token = CAST(item.key AS INTEGER) AND entry.state = 1
-- ====
UPDATE oncegate_entry SET label = ?1, reason = NULL WHERE id = ?2 AND label <> ?1
-- ====
UPDATE oncegate_entry SET lease_until = ? WHERE id = ? AND fence = ? AND token = ? AND state = 1
-- ====
UPDATE oncegate_entry SET state = 1, attempt = attempt + 1, fence = fence + 1, lease_until = ?, declared = CASE WHEN first_reserved IS NULL THEN ? ELSE declared END, first_reserved = coalesce(first_reserved, ?), token = ?, settled_at = NULL, reason = NULL, retry_at = NULL, interruptions = CASE WHEN state = 1 THEN coalesce(interruptions, 0) + 1 END WHERE id = ? AND fence = ?
-- ====
UPDATE oncegate_entry SET state = 2, settled_at = ?1, reason = NULL, lease_until = NULL, first_reserved = NULL, record = (SELECT coalesce(max(position), 0) + 1 FROM oncegate_log) WHERE id = ?2 AND fence = ?3 AND token = ?4 AND state = 1
-- ====
UPDATE oncegate_entry SET state = 6, settled_at = ?, reason = ?, token = NULL WHERE id = ? AND fence = ?
-- ====
UPDATE oncegate_entry SET state = 7, settled_at = ?, reason = ?, token = NULL WHERE id = ? AND state IN (4, 6)
-- ====
UPDATE oncegate_entry SET state = :state, fence = fence + 1, settled_at = :at, reason = :reason, token = NULL, attempt = CASE WHEN :runs THEN 0 ELSE attempt END, lease_until = CASE WHEN :runs THEN coalesce(lease_until, :now) END, first_reserved = CASE WHEN :again THEN :now WHEN :runs THEN first_reserved END, declared = CASE WHEN :again THEN :declared ELSE declared END, retry_at = NULL, interruptions = NULL, tried_from = CASE WHEN :runs THEN :now END WHERE id = :entry AND fence = :fence AND key = :key AND state IN ({states})
-- ====
UPDATE oncegate_entry SET state = ?1, settled_at = ?2, reason = ?3, token = CASE WHEN ?1 IN (2, 3) THEN token END, attempt = attempt - ?4, lease_until = ?5, first_reserved = CASE WHEN ?6 THEN NULL ELSE first_reserved END, retry_at = ?10, record = (SELECT coalesce(max(position), 0) + 1 FROM oncegate_log) WHERE id = ?7 AND fence = ?8 AND token = ?9 AND state = 1
-- ====
UPDATE oncegate_entry SET state = ?1, settled_at = ?2, reason = ?3, token = CASE WHEN ?1 IN (2, 3) THEN token END, attempt = attempt - ?4, lease_until = ?5, first_reserved = CASE WHEN ?6 THEN NULL ELSE first_reserved END, retry_at = ?10, record = ?11 WHERE id = ?7 AND fence = ?8 AND token = ?9 AND state = 1
-- ====
UPDATE oncegate_feed SET body = ?1 WHERE 
substr(CAST(context AS TEXT), instr(CAST(context AS TEXT), '"cause":"') + 9, 48) IN (
    SELECT lower(hex(key)) FROM oncegate_entry WHERE id IN (SELECT value FROM json_each(?2)))

-- ====
UPDATE oncegate_lane SET due_at = ?, touched_at = ? WHERE id = ? AND fence = ? AND holder = ? AND state = 3
-- ====
UPDATE oncegate_lane SET last_seq = last_seq - 1 WHERE id = ?
-- ====
UPDATE oncegate_lane SET replay = (SELECT min(seq) FROM oncegate_replay WHERE lane = ?1), attempt = 0, due_at = ?2 WHERE id = ?1 AND state = 2 AND replay IS NULL AND EXISTS (SELECT 1 FROM oncegate_replay WHERE lane = ?1)
-- ====
UPDATE oncegate_lane SET replay = ?1, state = 2, due_at = ?2, attempt = 0, error = NULL, touched_at = ?2 WHERE id = ?3 AND state <> 3
-- ====
UPDATE oncegate_lane SET replay = NULL, attempt = 0, state = ?, due_at = ?, touched_at = ? WHERE id = ?
-- ====
UPDATE oncegate_lane SET seq = ?, replay = ?, state = ?, due_at = ?, fence = fence + ?, holder = ?, attempt = 0, error = NULL, touched_at = ? WHERE id = ?
-- ====
UPDATE oncegate_lane SET state = 2, due_at = ?, attempt = attempt + ?, error = coalesce(?, error), holder = NULL, touched_at = ? WHERE id = ? AND fence = ? AND holder = ? AND state = 3
-- ====
UPDATE oncegate_lane SET state = 2, due_at = ?1, attempt = 0, touched_at = ?1 WHERE id = ?2
-- ====
UPDATE oncegate_lane SET state = 3, fence = fence + 1, holder = ?, due_at = ?, touched_at = ? WHERE id = ?
-- ====
UPDATE oncegate_lane SET state = 4, due_at = NULL, holder = NULL, attempt = ?, error = ?, touched_at = ? WHERE id = ?
-- ====
UPDATE oncegate_log SET note = ? WHERE position = ?
-- ====
UPDATE oncegate_meta SET value = ?1 - 1 WHERE name = 'listed'
-- ====
UPDATE oncegate_meta SET value = max(value, ?) WHERE name = 'floor'
-- ====

UPDATE oncegate_mutation
SET before = CASE WHEN before IS NOT NULL THEN ?1 END, after = CASE WHEN after IS NOT NULL THEN ?1 END
WHERE entry IN (SELECT value FROM json_each(?2))

-- ====
UPDATE oncegate_name SET unused_since = ? WHERE id = ? AND unused_since IS NULL
-- ====
UPDATE oncegate_name SET unused_since = NULL WHERE id = ?
-- ====
UPDATE oncegate_outcome SET body = ?1 WHERE entry = ?2 AND body <> ?1
-- ====
UPDATE oncegate_repeat SET evidence = '' WHERE entry = ?
-- ====
UPDATE oncegate_replay_order SET cancelled_at = ?, cancelled_by = ?, cancelled_why = ?, taken_back = taken_back + ? WHERE nonce = ?
-- ====
UPDATE oncegate_second SET dismissed_at = ?, dismissed_by = ?, note = ? WHERE id = ? AND dismissed_at IS NULL RETURNING entry
-- ====
WITH RECURSIVE named (number) AS (SELECT min(destination) FROM oncegate_lane UNION ALL SELECT (SELECT min(destination) FROM oncegate_lane WHERE destination > number) FROM named WHERE number IS NOT NULL) SELECT number FROM named WHERE number IS NOT NULL
-- ====
WITH RECURSIVE under_way (nonce) AS (SELECT min(nonce) FROM oncegate_replay UNION ALL SELECT (SELECT min(nonce) FROM oncegate_replay WHERE nonce > under_way.nonce) FROM under_way WHERE under_way.nonce IS NOT NULL LIMIT 1000) 
-- ====
WITH wanted (place, number) AS (VALUES {}) SELECT surface, content, entry, at, shared_by FROM wanted CROSS JOIN oncegate_seen ON surface = place AND content = number