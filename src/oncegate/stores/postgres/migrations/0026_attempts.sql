-- The last failed attempts of each delivery. A delivery that succeeds needs no row: its acknowledgement says how.
CREATE TABLE oncegate_attempt (
    lane   bigint  NOT NULL,
    seq    bigint  NOT NULL,
    fence  bigint  NOT NULL,
    at     bigint  NOT NULL,
    took   integer NOT NULL,
    status integer,
    error  text    NOT NULL,
    PRIMARY KEY (lane, seq, fence)
);
-- Replays by the time and the type of their events.
ALTER TABLE oncegate_replay_order ADD COLUMN since bigint;
ALTER TABLE oncegate_replay_order ADD COLUMN until bigint;
ALTER TABLE oncegate_replay_order ADD COLUMN type text;
