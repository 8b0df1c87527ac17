-- Destinations that were ever steered or throttled; others are active. `id` is the number of the name.
-- `not_before` is in ledger time.
CREATE TABLE oncegate_destination (
    id         INTEGER PRIMARY KEY,
    state      INTEGER NOT NULL DEFAULT 1,
    since      INTEGER,
    reason     TEXT,
    not_before INTEGER NOT NULL DEFAULT 0
);

-- One row a lane, kept for ever: a seq is never used again. `seq` is the head, `replay` a past event that goes
-- before it. `due_at`, in ledger time, is when the head may be leased: the next try or the end of a lease;
-- lanes that are idle or blocked have none, and so are not in the index that is searched for work.
CREATE TABLE oncegate_lane (
    id          INTEGER PRIMARY KEY,
    destination INTEGER NOT NULL REFERENCES oncegate_name (id),
    tenant      INTEGER NOT NULL REFERENCES oncegate_name (id),
    last_seq    INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    replay      INTEGER,
    state       INTEGER NOT NULL,
    due_at      INTEGER,
    fence       INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    holder      INTEGER,
    touched_at  INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    error       TEXT
);
CREATE UNIQUE INDEX oncegate_lane_key ON oncegate_lane (destination, tenant, key);
CREATE INDEX oncegate_lane_due ON oncegate_lane (destination, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX oncegate_lane_open ON oncegate_lane (id) WHERE state <> 1;

-- Events in their lanes. Never changed: what is before the head is done.
CREATE TABLE oncegate_delivery (
    id          INTEGER PRIMARY KEY,
    lane        INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    type        INTEGER NOT NULL REFERENCES oncegate_name (id),
    created_at  INTEGER NOT NULL,
    fingerprint BLOB    NOT NULL,
    event       TEXT    NOT NULL,
    context     BLOB    NOT NULL,
    payload     BLOB    NOT NULL
);
CREATE UNIQUE INDEX oncegate_delivery_seq ON oncegate_delivery (lane, seq);
CREATE UNIQUE INDEX oncegate_delivery_event ON oncegate_delivery (destination, event);

-- What came of deliveries. Numbered as the deliveries are, so that rows of one moment lie together.
CREATE TABLE oncegate_ack (
    delivery INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    note     TEXT
);
CREATE TABLE oncegate_dead_letter (
    lane     INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    error    TEXT    NOT NULL,
    PRIMARY KEY (lane, seq)
) WITHOUT ROWID;

-- Past events that go once more before their lane goes on.
CREATE TABLE oncegate_replay (
    lane  INTEGER NOT NULL,
    seq   INTEGER NOT NULL,
    nonce INTEGER NOT NULL,
    PRIMARY KEY (lane, seq)
) WITHOUT ROWID;
CREATE INDEX oncegate_replay_nonce ON oncegate_replay (nonce);
