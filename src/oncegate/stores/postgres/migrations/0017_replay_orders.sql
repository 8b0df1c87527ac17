-- Replays as they were asked for: kept after their last event has gone, with what became of them. One of many lanes
-- names no lane and no tenant. `at` is none for replays that were under way before there was this table.
CREATE TABLE oncegate_replay_order (
    id            bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    nonce         bigint  NOT NULL UNIQUE,
    lane          bigint,
    seq_from      bigint  NOT NULL,
    seq_to        bigint,
    at            bigint,
    deliveries    bigint  NOT NULL,
    lanes         bigint  NOT NULL,
    taken_back    bigint  NOT NULL DEFAULT 0,
    cancelled_at  bigint,
    destination   integer NOT NULL,
    tenant        integer,
    only_dead     boolean NOT NULL,
    actor         text    NOT NULL,
    reason        text    NOT NULL,
    cancelled_by  text,
    cancelled_why text
);
CREATE INDEX oncegate_replay_order_place ON oncegate_replay_order (destination, id);
CREATE INDEX oncegate_replay_order_tenant ON oncegate_replay_order (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX oncegate_replay_order_lane ON oncegate_replay_order (lane, id) WHERE lane IS NOT NULL;
INSERT INTO oncegate_replay_order
    (nonce, destination, tenant, lane, seq_from, seq_to, only_dead, deliveries, lanes, actor, reason)
SELECT again.nonce, min(lane.destination), CASE WHEN count(DISTINCT again.lane) = 1 THEN min(lane.tenant) END,
       CASE WHEN count(DISTINCT again.lane) = 1 THEN min(again.lane) END, min(again.seq), max(again.seq), false,
       count(*), count(DISTINCT again.lane), '', ''
FROM oncegate_replay AS again JOIN oncegate_lane AS lane ON lane.id = again.lane GROUP BY again.nonce;
