-- The last failed attempts of each delivery. A delivery that succeeds needs no row: its acknowledgement says how.
CREATE TABLE oncegate_attempt (
    lane   INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    fence  INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    took   INTEGER NOT NULL,
    status INTEGER,
    error  TEXT    NOT NULL,
    PRIMARY KEY (lane, seq, fence)
) WITHOUT ROWID;
-- Replays by the time and the type of their events.
ALTER TABLE oncegate_replay_order ADD COLUMN since INTEGER;
ALTER TABLE oncegate_replay_order ADD COLUMN until INTEGER;
ALTER TABLE oncegate_replay_order ADD COLUMN type TEXT;
