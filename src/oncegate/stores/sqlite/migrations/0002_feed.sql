-- The feed. One row a tenant: the last position given out, and the last one removed.
CREATE TABLE oncegate_feed_tenant (
    tenant INTEGER PRIMARY KEY REFERENCES oncegate_name (id),
    last   INTEGER NOT NULL,
    floor  INTEGER NOT NULL DEFAULT 0
);

-- The last seq of every key, kept for ever.
CREATE TABLE oncegate_feed_key (
    tenant INTEGER NOT NULL,
    key    TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- SQLite has one writer, so an event's position can be given when it is written.
CREATE TABLE oncegate_feed (
    tenant      INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    event_id    TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    body        BLOB    NOT NULL,
    PRIMARY KEY (tenant, position)
);
CREATE UNIQUE INDEX oncegate_feed_event ON oncegate_feed (tenant, event_id);

-- How far each reader has acknowledged.
CREATE TABLE oncegate_feed_reader (
    tenant   INTEGER NOT NULL,
    reader   TEXT    NOT NULL,
    position INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (tenant, reader)
) WITHOUT ROWID;

INSERT INTO oncegate_meta (name, value) VALUES ('feed_secret', lower(hex(randomblob(32))));
