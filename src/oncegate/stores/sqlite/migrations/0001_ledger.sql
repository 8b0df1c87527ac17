-- The embedded ledger. Columns named `..._at` and `at` hold wall-clock milliseconds since 1970. Columns said to be in
-- ledger time hold milliseconds of the ledger's own time, which no step of a clock moves. Numbers of states, kinds and
-- classes are those of the enumerations in `model/` and `store/`. Names are kept as their numbers in `oncegate_name`.


-- Shared by all facets ------------------------------------------------------------------------------------------------

-- Names of surfaces, tenants, downstreams, destinations, types and actors, and declarations: each text once.
CREATE TABLE oncegate_name (
    id           INTEGER PRIMARY KEY,  -- never given out again
    text         TEXT NOT NULL UNIQUE,
    unused_since INTEGER  -- in ledger time: since when no row uses the name; NULL while one does or may
);

-- Facts of the ledger. The number of the newest applied migration is the row `schema_version`.
CREATE TABLE oncegate_meta (
    name  TEXT PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;
-- The highest number that a removed entry or claim ever had. Numbers of entries and fences of claims stay above it, so
-- that neither is ever used again.
INSERT INTO oncegate_meta (name, value) VALUES ('floor', 0);
INSERT INTO oncegate_meta (name, value) VALUES ('ledger_id', lower(hex(randomblob(16))));
-- Signs the cursors of the feed.
INSERT INTO oncegate_meta (name, value) VALUES ('feed_secret', lower(hex(randomblob(32))));
-- First claims with numbers up to this one are in `oncegate_lasting`.
INSERT INTO oncegate_meta (name, value) VALUES ('listed', 0);


-- Claims --------------------------------------------------------------------------------------------------------------

-- One narrow row a key. Lease and first reservation are emptied when a claim ends, so that a settled row is never
-- larger than it was in flight and pages stay full.
CREATE TABLE oncegate_entry (
    id             INTEGER PRIMARY KEY,
    key            BLOB    NOT NULL,  -- the hash of surface, tenant and key
    surface        INTEGER NOT NULL REFERENCES oncegate_name (id),
    tenant         INTEGER NOT NULL REFERENCES oncegate_name (id),
    state          INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    fence          INTEGER NOT NULL,  -- grows with every claim; the first claim's is the entry's own number
    fingerprint    BLOB    NOT NULL,  -- the hash of the event's content
    label          TEXT    NOT NULL,  -- the key as people read it
    received_at    INTEGER NOT NULL,
    settled_at     INTEGER,
    record         INTEGER,  -- the position in the log of the record that settled the entry
    lease_until    INTEGER,  -- in ledger time
    first_reserved INTEGER,  -- in ledger time
    token          INTEGER,  -- random: which claim of this fence may act
    reason         TEXT,
    declared       INTEGER,  -- a name: what the program declared at the first claim; NULL or 0 is unknown
    retry_at       INTEGER,  -- in ledger time: when a failed attempt may be made again; NULL is at once
    interruptions  INTEGER,  -- claims in a row that were taken over from a worker that died
    tried_from     INTEGER   -- in ledger time: from when on attempts count; NULL is from the first attempt
);
CREATE UNIQUE INDEX oncegate_entry_key ON oncegate_entry (key);
-- A claim that runs for the first time is in no index: most are over within milliseconds, and an index entry that is
-- made and removed again costs two pages an event.
CREATE INDEX oncegate_entry_open ON oncegate_entry (state, lease_until)
    WHERE state NOT IN (2, 3) AND (state <> 1 OR fence <> id);

-- First claims that last longer. Those with higher numbers than `listed` in `oncegate_meta` are found by their numbers.
CREATE TABLE oncegate_lasting (entry INTEGER PRIMARY KEY);

-- The bulky parts, each in a table of its own so that they can be removed without touching a key.
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
    started_at INTEGER,  -- when the call was made
    declared   INTEGER,  -- a name: what the downstream was declared to do when it was called
    last_call  INTEGER,  -- in ledger time: when the downstream may last have been called
    first_call INTEGER,  -- in ledger time: before it the downstream certainly was not called
    PRIMARY KEY (entry, name)
) WITHOUT ROWID;

-- How far each ordered lane of incoming events has been applied; moves with the event's outcome.
CREATE TABLE oncegate_position (
    lane   BLOB PRIMARY KEY,  -- the hash of surface, tenant and lane
    seq    INTEGER NOT NULL,
    missed INTEGER NOT NULL,  -- how many numbers were passed over
    at     INTEGER NOT NULL
) WITHOUT ROWID;

-- Entries whose event came with a correlation id or a trace context.
CREATE TABLE oncegate_trace (
    entry   INTEGER PRIMARY KEY,
    trace   TEXT NOT NULL,
    context BLOB NOT NULL
);
CREATE INDEX oncegate_trace_trace ON oncegate_trace (trace);

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


-- Log -----------------------------------------------------------------------------------------------------------------

-- SQLite has one writer, so positions are in commit order. The newest row is never deleted.
CREATE TABLE oncegate_log (
    position INTEGER PRIMARY KEY,
    entry    INTEGER NOT NULL,
    kind     INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    actor    INTEGER NOT NULL REFERENCES oncegate_name (id),
    note     TEXT
);
-- A committed entry knows its own record (`oncegate_entry.record`), so that the common case costs no index.
CREATE INDEX oncegate_log_entry ON oncegate_log (entry) WHERE kind <> 2;
-- What people did and what was given up, for the journal that people read: few among the gate's own records.
CREATE INDEX oncegate_log_people ON oncegate_log (position) WHERE kind > 10;


-- Feed ----------------------------------------------------------------------------------------------------------------

-- One row a tenant.
CREATE TABLE oncegate_feed_tenant (
    tenant INTEGER PRIMARY KEY REFERENCES oncegate_name (id),
    last   INTEGER NOT NULL,  -- the last position given out
    floor  INTEGER NOT NULL DEFAULT 0  -- the last position removed
);

-- The last seq of every key, kept for ever.
CREATE TABLE oncegate_feed_key (
    tenant INTEGER NOT NULL,
    key    TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- Events. SQLite has one writer, so an event's position can be given when it is written.
CREATE TABLE oncegate_feed (
    tenant      INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    seq         INTEGER NOT NULL,  -- of the key
    at          INTEGER NOT NULL,
    event_id    TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    body        BLOB    NOT NULL,
    context     BLOB,  -- the trace that the event belongs to
    PRIMARY KEY (tenant, position)
);
CREATE UNIQUE INDEX oncegate_feed_event ON oncegate_feed (tenant, event_id);
-- A context with a trace begins with {"trace_id":" and 32 hex digits.
CREATE INDEX oncegate_feed_trace ON oncegate_feed (substr(context, 14, 32))
    WHERE substr(context, 1, 13) = x'7b2274726163655f6964223a22';

-- How far each reader has acknowledged.
CREATE TABLE oncegate_feed_reader (
    tenant   INTEGER NOT NULL,
    reader   TEXT    NOT NULL,
    position INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (tenant, reader)
) WITHOUT ROWID;


-- Lanes ---------------------------------------------------------------------------------------------------------------

-- Destinations that were ever steered or throttled; others are active.
CREATE TABLE oncegate_destination (
    id         INTEGER PRIMARY KEY,  -- the number of the name
    state      INTEGER NOT NULL DEFAULT 1,
    since      INTEGER,
    reason     TEXT,
    not_before INTEGER NOT NULL DEFAULT 0  -- in ledger time
);

-- One row a lane, kept for ever: a seq is never used again.
CREATE TABLE oncegate_lane (
    id          INTEGER PRIMARY KEY,
    destination INTEGER NOT NULL REFERENCES oncegate_name (id),
    tenant      INTEGER NOT NULL REFERENCES oncegate_name (id),
    last_seq    INTEGER NOT NULL,
    seq         INTEGER NOT NULL,  -- the head
    replay      INTEGER,  -- the seq of a past event that goes before the head
    state       INTEGER NOT NULL,
    due_at      INTEGER,  -- in ledger time: the next try or the end of a lease; NULL for idle and blocked lanes
    fence       INTEGER NOT NULL,  -- grows with every lease
    attempt     INTEGER NOT NULL,
    holder      INTEGER,  -- random: who has the lease
    touched_at  INTEGER NOT NULL,  -- in ledger time
    key         TEXT    NOT NULL,
    error       TEXT
);
CREATE UNIQUE INDEX oncegate_lane_key ON oncegate_lane (destination, tenant, key);
-- Searched for work: idle and blocked lanes are not in it.
CREATE INDEX oncegate_lane_due ON oncegate_lane (destination, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX oncegate_lane_open ON oncegate_lane (id) WHERE state <> 1;
-- Lanes by their key alone, for traces.
CREATE INDEX oncegate_lane_of_key ON oncegate_lane (key);

-- Events in their lanes. Never changed: what is before the head is done.
CREATE TABLE oncegate_delivery (
    id          INTEGER PRIMARY KEY,
    lane        INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    type        INTEGER NOT NULL REFERENCES oncegate_name (id),
    created_at  INTEGER NOT NULL,
    fingerprint BLOB    NOT NULL,
    event       TEXT    NOT NULL,  -- the event's id
    context     BLOB    NOT NULL,  -- the trace that the event belongs to
    payload     BLOB    NOT NULL
);
CREATE UNIQUE INDEX oncegate_delivery_seq ON oncegate_delivery (lane, seq);
CREATE UNIQUE INDEX oncegate_delivery_event ON oncegate_delivery (destination, event);
-- A context with a trace begins with {"trace_id":" and 32 hex digits.
CREATE INDEX oncegate_delivery_trace ON oncegate_delivery (substr(context, 14, 32))
    WHERE substr(context, 1, 13) = x'7b2274726163655f6964223a22';

-- Deliveries that succeeded. Numbered as the deliveries are, so that rows of one moment lie together.
CREATE TABLE oncegate_ack (
    delivery INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    note     TEXT
);

-- Deliveries that were given up.
CREATE TABLE oncegate_dead_letter (
    lane     INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    error    TEXT    NOT NULL,
    PRIMARY KEY (lane, seq)
) WITHOUT ROWID;

-- The last failed attempts of each delivery. A delivery that succeeds needs no row: its acknowledgement says how.
CREATE TABLE oncegate_attempt (
    lane   INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    fence  INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    took   INTEGER NOT NULL,  -- milliseconds
    status INTEGER,  -- of the HTTP response, if there was one
    error  TEXT    NOT NULL,
    PRIMARY KEY (lane, seq, fence)
) WITHOUT ROWID;

-- Past events that go once more before their lane goes on.
CREATE TABLE oncegate_replay (
    lane  INTEGER NOT NULL,
    seq   INTEGER NOT NULL,
    nonce INTEGER NOT NULL,  -- the replay's
    PRIMARY KEY (lane, seq)
) WITHOUT ROWID;
CREATE INDEX oncegate_replay_nonce ON oncegate_replay (nonce);

-- Replays as they were asked for, with what became of them. Kept after their last event has gone.
CREATE TABLE oncegate_replay_order (
    id            INTEGER PRIMARY KEY,
    nonce         INTEGER NOT NULL UNIQUE,  -- names the replay
    destination   INTEGER NOT NULL REFERENCES oncegate_name (id),
    tenant        INTEGER,  -- NULL for a replay of many lanes
    lane          INTEGER,  -- NULL for a replay of many lanes
    seq_from      INTEGER NOT NULL,
    seq_to        INTEGER,
    only_dead     INTEGER NOT NULL,
    at            INTEGER,
    deliveries    INTEGER NOT NULL,
    lanes         INTEGER NOT NULL,
    taken_back    INTEGER NOT NULL DEFAULT 0,  -- deliveries that a cancellation removed
    cancelled_at  INTEGER,
    actor         TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    cancelled_by  TEXT,
    cancelled_why TEXT,
    since         INTEGER,  -- only events emitted from this moment on
    until         INTEGER,  -- only events emitted before this moment
    type          TEXT      -- only events of this type
);
CREATE INDEX oncegate_replay_order_place ON oncegate_replay_order (destination, id);
CREATE INDEX oncegate_replay_order_tenant ON oncegate_replay_order (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX oncegate_replay_order_lane ON oncegate_replay_order (lane, id) WHERE lane IS NOT NULL;


-- Review --------------------------------------------------------------------------------------------------------------

-- What events would change, for surfaces that declare it. SQLite has one writer, so entries are in commit order.
CREATE TABLE oncegate_content (
    entry        INTEGER PRIMARY KEY,
    hash         BLOB    NOT NULL,
    target       TEXT    NOT NULL,
    compensation TEXT
);
CREATE INDEX oncegate_content_hash ON oncegate_content (hash, entry);

-- Pairs of entries with the same content under different keys.
CREATE TABLE oncegate_duplicate (
    entry        INTEGER PRIMARY KEY,  -- the later one
    other        INTEGER NOT NULL,
    flagged_at   INTEGER NOT NULL,
    undecided    INTEGER NOT NULL,
    dismissed_at INTEGER,
    dismissed_by INTEGER REFERENCES oncegate_name (id),
    note         TEXT
);
CREATE INDEX oncegate_duplicate_undecided ON oncegate_duplicate (entry) WHERE undecided = 1;
-- Pairs that wait for a person, oldest first.
CREATE INDEX oncegate_duplicate_open ON oncegate_duplicate (entry) WHERE dismissed_at IS NULL;

-- The latest resource of each target for a while, and the one before it, so that one statement returns both.
CREATE TABLE oncegate_target (
    about           BLOB    NOT NULL PRIMARY KEY,  -- the hash of tenant, target, step and downstream
    entry           INTEGER NOT NULL,
    resource        TEXT    NOT NULL,
    until           INTEGER NOT NULL,
    before_entry    INTEGER,
    before_resource TEXT,
    before_until    INTEGER
) WITHOUT ROWID;
CREATE INDEX oncegate_target_until ON oncegate_target (until);

-- Second resources of a key or a target.
CREATE TABLE oncegate_second (
    id             INTEGER PRIMARY KEY,
    about          BLOB    NOT NULL,
    target         TEXT    NOT NULL,
    step           TEXT    NOT NULL,
    place          TEXT    NOT NULL,  -- the downstream
    entry          INTEGER NOT NULL,
    resource       TEXT    NOT NULL,
    other          INTEGER NOT NULL,  -- the entry with the other resource
    other_resource TEXT,  -- NULL where a worker returned the resource after it had lost its claim
    found_at       INTEGER NOT NULL,
    dismissed_at   INTEGER,
    dismissed_by   INTEGER,
    note           TEXT,
    UNIQUE (about, resource)
);
CREATE INDEX oncegate_second_open ON oncegate_second (id) WHERE dismissed_at IS NULL;
CREATE INDEX oncegate_second_entry ON oncegate_second (entry);


-- What events changed in users' own objects. Rows are only added, and removed when they are old.
CREATE TABLE oncegate_mutation (
    number INTEGER PRIMARY KEY,
    entry  INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    target TEXT    NOT NULL,  -- the object's id, as JSON
    nth    INTEGER NOT NULL,  -- tells changes of one object by one event apart
    before BLOB,  -- NULL for an object that did not exist
    after  BLOB,  -- NULL for an object that does not exist any more
    done   INTEGER NOT NULL,  -- 0 for a row that was written before the call
    at     INTEGER NOT NULL
);


-- Stats ---------------------------------------------------------------------------------------------------------------

-- Counters by minute; older minutes are added to their hours. Ordered by time: old rows lie together.
CREATE TABLE oncegate_tally (
    minute  INTEGER NOT NULL,  -- since 1970, in UTC
    surface INTEGER NOT NULL REFERENCES oncegate_name (id),
    what    INTEGER NOT NULL,
    count   INTEGER NOT NULL,
    total   INTEGER NOT NULL,  -- the sum of what was measured, such as microseconds
    PRIMARY KEY (minute, surface, what)
) WITHOUT ROWID;

-- Repeats of an entry, one row a class.
CREATE TABLE oncegate_repeat (
    entry    INTEGER NOT NULL,
    class    INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL,
    times    INTEGER NOT NULL,
    evidence TEXT    NOT NULL,
    PRIMARY KEY (entry, class)
) WITHOUT ROWID;
-- Those that point at a sender: conflict, new id per retry, stale offset, split action.
CREATE INDEX oncegate_repeat_bug ON oncegate_repeat (last_at) WHERE class IN (4, 5, 6, 7);

-- Contents of new events for an hour, so that one event under two ids is found across processes.
CREATE TABLE oncegate_seen (
    surface   INTEGER NOT NULL REFERENCES oncegate_name (id),
    content   INTEGER NOT NULL,  -- a hash
    entry     INTEGER NOT NULL,  -- the latest with this content
    at        INTEGER NOT NULL,
    shared_by INTEGER NOT NULL,  -- how many entries had this content
    PRIMARY KEY (surface, content)
) WITHOUT ROWID;
CREATE INDEX oncegate_seen_at ON oncegate_seen (surface, at);

-- The last repeats of each surface, so that a reader that began at an old position is found across processes.
CREATE TABLE oncegate_seen_repeat (
    surface  INTEGER NOT NULL REFERENCES oncegate_name (id),
    at       INTEGER NOT NULL,
    entry    INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    fresh    INTEGER NOT NULL,  -- how many new events the process had before it
    PRIMARY KEY (surface, at, entry)
) WITHOUT ROWID;


-- Registry ------------------------------------------------------------------------------------------------------------

-- Small named documents of the ledger's users, such as endpoints.
CREATE TABLE oncegate_document (
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    body       BLOB,  -- NULL for a document that was removed
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- Short-lived messages between processes, such as the state of an endpoint's circuit.
CREATE TABLE oncegate_notice (
    kind    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    writer  TEXT    NOT NULL,
    body    BLOB    NOT NULL,
    told_at INTEGER NOT NULL,  -- for people
    posted  INTEGER NOT NULL,  -- in ledger time
    until   INTEGER NOT NULL,  -- in ledger time
    PRIMARY KEY (kind, name, writer)
);
CREATE INDEX oncegate_notice_posted ON oncegate_notice (kind, posted);
