-- The feed. One row a tenant: the last position given out, and the last one removed. Whoever gives out
-- positions holds it.
CREATE TABLE oncegate_feed_tenant (
    tenant integer PRIMARY KEY,
    last   bigint  NOT NULL,
    floor  bigint  NOT NULL DEFAULT 0
);

-- The last seq of every key, kept for ever. Locked by whoever publishes under the key, until they commit.
CREATE TABLE oncegate_feed_key (
    tenant integer NOT NULL,
    seq    bigint  NOT NULL,
    key    text    NOT NULL,
    PRIMARY KEY (tenant, key)
) WITH (fillfactor = 70);

-- Events. A position is given by a reader, to rows that are committed, in the order of `id`.
CREATE TABLE oncegate_feed (
    id          bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position    bigint,
    seq         bigint  NOT NULL,
    at          bigint  NOT NULL,
    tenant      integer NOT NULL,
    event_id    text    NOT NULL,
    key         text    NOT NULL,
    fingerprint bytea   NOT NULL,
    body        bytea   NOT NULL
) WITH (fillfactor = 85);
CREATE UNIQUE INDEX oncegate_feed_event ON oncegate_feed (tenant, event_id);
CREATE UNIQUE INDEX oncegate_feed_position ON oncegate_feed (tenant, position);
CREATE INDEX oncegate_feed_fresh ON oncegate_feed (tenant, id) WHERE position IS NULL;

-- How far each reader has acknowledged.
CREATE TABLE oncegate_feed_reader (
    tenant   integer NOT NULL,
    position bigint  NOT NULL,
    at       bigint  NOT NULL,
    reader   text    NOT NULL,
    PRIMARY KEY (tenant, reader)
);

INSERT INTO oncegate_meta (name, value)
VALUES ('feed_secret', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));
