-- Replays as they were asked for: kept after their last event has gone, with what became of them. One of many lanes
-- names no lane and no tenant. `at` is none for replays that were under way before there was this table.
CREATE TABLE oncegate_replay_order (
    id            INTEGER PRIMARY KEY,
    nonce         INTEGER NOT NULL UNIQUE,
    destination   INTEGER NOT NULL REFERENCES oncegate_name (id),
    tenant        INTEGER,
    lane          INTEGER,
    seq_from      INTEGER NOT NULL,
    seq_to        INTEGER,
    only_dead     INTEGER NOT NULL,
    at            INTEGER,
    deliveries    INTEGER NOT NULL,
    lanes         INTEGER NOT NULL,
    taken_back    INTEGER NOT NULL DEFAULT 0,
    cancelled_at  INTEGER,
    actor         TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    cancelled_by  TEXT,
    cancelled_why TEXT
);
CREATE INDEX oncegate_replay_order_place ON oncegate_replay_order (destination, id);
CREATE INDEX oncegate_replay_order_tenant ON oncegate_replay_order (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX oncegate_replay_order_lane ON oncegate_replay_order (lane, id) WHERE lane IS NOT NULL;
INSERT INTO oncegate_replay_order
    (nonce, destination, tenant, lane, seq_from, seq_to, only_dead, deliveries, lanes, actor, reason)
SELECT again.nonce, min(lane.destination), CASE WHEN count(DISTINCT again.lane) = 1 THEN min(lane.tenant) END,
       CASE WHEN count(DISTINCT again.lane) = 1 THEN min(again.lane) END, min(again.seq), max(again.seq), 0,
       count(*), count(DISTINCT again.lane), '', ''
FROM oncegate_replay AS again JOIN oncegate_lane AS lane ON lane.id = again.lane GROUP BY again.nonce;
