-- Destinations that were ever steered or throttled; others are active. `id` is the number of the name.
-- `not_before` is in ledger time.
CREATE TABLE oncegate_destination (
    id         integer  PRIMARY KEY,
    not_before bigint   NOT NULL DEFAULT 0,
    since      bigint,
    state      smallint NOT NULL DEFAULT 1,
    reason     text
);

-- One row a lane, kept for ever: a seq is never used again. Locked by whoever adds to the lane, until their
-- transaction ends; that is why what workers change is in a row of its own. `idle` is 1 where the head has
-- nothing to do, and 2 where the last transaction that added to the lane has just ended that.
CREATE TABLE oncegate_lane (
    id          bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    last_seq    bigint   NOT NULL,
    destination integer  NOT NULL,
    tenant      integer  NOT NULL,
    idle        smallint NOT NULL,
    key         text     NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX oncegate_lane_key ON oncegate_lane (destination, tenant, key);

-- What workers change. `seq` is the head, `replay` a past event that goes before it. `due_at`, in ledger time, is
-- when the head may be leased: the next try or the end of a lease; lanes that are idle or blocked have none,
-- and so are not in the index that is searched for work.
CREATE TABLE oncegate_head (
    lane        bigint   PRIMARY KEY,
    seq         bigint   NOT NULL,
    replay      bigint,
    due_at      bigint,
    fence       bigint   NOT NULL,
    holder      bigint,
    destination integer  NOT NULL,
    attempt     integer  NOT NULL,
    state       smallint NOT NULL,
    error       text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX oncegate_head_due ON oncegate_head (destination, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX oncegate_head_open ON oncegate_head (lane) WHERE state <> 1;

-- Events in their lanes. Never changed: what is before the head is done.
CREATE TABLE oncegate_delivery (
    lane        bigint  NOT NULL,
    seq         bigint  NOT NULL,
    created_at  bigint  NOT NULL,
    destination integer NOT NULL,
    type        integer NOT NULL,
    event       text    NOT NULL,
    fingerprint bytea   NOT NULL,
    context     bytea   NOT NULL,
    payload     bytea   NOT NULL,
    PRIMARY KEY (lane, seq)
);
CREATE UNIQUE INDEX oncegate_delivery_event ON oncegate_delivery (destination, event);

-- What came of deliveries.
CREATE TABLE oncegate_ack (
    lane     bigint  NOT NULL,
    seq      bigint  NOT NULL,
    at       bigint  NOT NULL,
    fence    bigint  NOT NULL,
    attempts integer NOT NULL,
    note     text,
    PRIMARY KEY (lane, seq)
);
CREATE TABLE oncegate_dead_letter (
    lane     bigint  NOT NULL,
    seq      bigint  NOT NULL,
    at       bigint  NOT NULL,
    fence    bigint  NOT NULL,
    attempts integer NOT NULL,
    error    text    NOT NULL,
    PRIMARY KEY (lane, seq)
);

-- Past events that go once more before their lane goes on.
CREATE TABLE oncegate_replay (
    lane  bigint NOT NULL,
    seq   bigint NOT NULL,
    nonce bigint NOT NULL,
    PRIMARY KEY (lane, seq)
);
CREATE INDEX oncegate_replay_nonce ON oncegate_replay (nonce);
