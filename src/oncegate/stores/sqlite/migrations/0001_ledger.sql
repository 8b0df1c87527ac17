-- Names of surfaces, tenants, downstreams and actors, written once.
CREATE TABLE oncegate_name (
    id   INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE
);

-- Facts of the ledger. `floor` is the highest number that a removed entry or claim ever had: numbers of
-- entries and fences of claims stay above it, so that neither is ever used again.
CREATE TABLE oncegate_meta (
    name  TEXT PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;
INSERT INTO oncegate_meta (name, value) VALUES ('floor', 0);
INSERT INTO oncegate_meta (name, value) VALUES ('ledger_id', lower(hex(randomblob(16))));

-- One narrow row a key. What only a running claim needs (lease, token, first reservation) is emptied when
-- it ends, so that a settled row is never larger than it was in flight and pages stay full.
CREATE TABLE oncegate_entry (
    id             INTEGER PRIMARY KEY,
    key            BLOB    NOT NULL,
    surface        INTEGER NOT NULL REFERENCES oncegate_name (id),
    tenant         INTEGER NOT NULL REFERENCES oncegate_name (id),
    state          INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    fence          INTEGER NOT NULL,
    fingerprint    BLOB    NOT NULL,
    label          TEXT    NOT NULL,
    received_at    INTEGER NOT NULL,
    settled_at     INTEGER,
    record         INTEGER,
    lease_until    INTEGER,
    first_reserved INTEGER,
    token          INTEGER,
    reason         TEXT
);
CREATE UNIQUE INDEX oncegate_entry_key ON oncegate_entry (key);
CREATE INDEX oncegate_entry_open ON oncegate_entry (state, lease_until) WHERE state NOT IN (2, 3);

-- The bulky parts, each in a table of its own so that they can be dropped without touching a key.
CREATE TABLE oncegate_payload (
    entry INTEGER PRIMARY KEY,
    body  BLOB NOT NULL
);
CREATE TABLE oncegate_outcome (
    entry INTEGER PRIMARY KEY,
    body  BLOB NOT NULL
);

-- Steps of claims that have not ended; a final outcome carries its own steps.
CREATE TABLE oncegate_step (
    entry      INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    state      INTEGER NOT NULL,
    downstream INTEGER NOT NULL REFERENCES oncegate_name (id),
    result     BLOB,
    resource   TEXT,
    PRIMARY KEY (entry, name)
) WITHOUT ROWID;

-- The log. SQLite has one writer, so positions are in commit order; the newest row is never deleted.
CREATE TABLE oncegate_log (
    position INTEGER PRIMARY KEY,
    entry    INTEGER NOT NULL,
    kind     INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    actor    INTEGER NOT NULL REFERENCES oncegate_name (id),
    note     TEXT
);
-- A committed entry knows its own record (entry.record), so that the common case costs no index.
CREATE INDEX oncegate_log_entry ON oncegate_log (entry) WHERE kind <> 2;

-- For people and their tools.
CREATE VIEW oncegate_entries AS
SELECT entry.id,
       lower(hex(entry.key)) AS key,
       surface.text          AS surface,
       tenant.text           AS tenant,
       entry.label           AS label,
       CASE entry.state
           WHEN 1 THEN 'in_flight' WHEN 2 THEN 'committed' WHEN 3 THEN 'failed' WHEN 4 THEN 'retryable'
           WHEN 5 THEN 'unknown' WHEN 6 THEN 'held' WHEN 7 THEN 'quarantined'
       END                   AS state,
       entry.attempt,
       entry.fence,
       strftime('%Y-%m-%dT%H:%M:%fZ', entry.received_at / 1000.0, 'unixepoch') AS received_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', entry.settled_at / 1000.0, 'unixepoch')  AS settled_at,
       entry.reason
FROM oncegate_entry AS entry
JOIN oncegate_name AS surface ON surface.id = entry.surface
JOIN oncegate_name AS tenant ON tenant.id = entry.tenant;
