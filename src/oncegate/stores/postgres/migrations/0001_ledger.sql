-- The PostgreSQL ledger. Columns named `..._at` and `at` hold wall-clock milliseconds since 1970. Columns said to be in
-- ledger time hold milliseconds of the ledger's own time (`oncegate_now`). Numbers of states, kinds and classes are
-- those of the enumerations in `model/` and `store/`. Names are kept as their numbers in `oncegate_name`.


-- Shared by all facets ------------------------------------------------------------------------------------------------

-- Facts of the ledger. The number of the newest applied migration is the row `schema_version`.
CREATE TABLE oncegate_meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO oncegate_meta (name, value) VALUES ('ledger_id', gen_random_uuid()::text);
-- Signs the cursors of the feed.
INSERT INTO oncegate_meta (name, value)
VALUES ('feed_secret', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));

-- Names of surfaces, tenants, downstreams, destinations, types and actors, and declarations: each text once.
CREATE TABLE oncegate_name (
    id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- never given out again
    text         text NOT NULL UNIQUE,
    unused_since bigint,  -- in ledger time: since when no row uses the name; NULL while one does or may
    unused_xact  xid8     -- the name is removed only when every transaction before this one has ended
);

-- The ledger's own time. It goes on with the server's clock. A step back of that clock does not take it back. A step
-- ahead, or a pause in which no process kept it, counts as 20 s at most: see docs/decisions/0003.
CREATE TABLE oncegate_ticks (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),  -- there is one row
    ticks bigint  NOT NULL,  -- the ledger's time
    wall  bigint  NOT NULL   -- the server's clock at that time
) WITH (fillfactor = 10);

CREATE FUNCTION oncegate_clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

INSERT INTO oncegate_ticks (ticks, wall) SELECT now, now FROM oncegate_clock() AS now;

CREATE FUNCTION oncegate_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks
$$;


-- Claims --------------------------------------------------------------------------------------------------------------

-- Numbers of entries and fences of claims: one sequence, so that neither is ever used again.
CREATE SEQUENCE oncegate_number AS bigint;

-- The month of a moment, as in 202611: which partition a payload and an outcome belong to.
CREATE FUNCTION oncegate_month(at bigint) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (extract(year FROM to_timestamp(at / 1000) AT TIME ZONE 'UTC') * 100
          + extract(month FROM to_timestamp(at / 1000) AT TIME ZONE 'UTC'))::integer
$$;

-- One narrow row a key, never split by time: a key stays unique across every month. No index mentions `state`, so that
-- settling an entry is a HOT update. Entries that come in one batch lie on one page and are settled in one batch: the
-- page has room for all of their new versions, or each of those costs an entry in both indexes.
CREATE TABLE oncegate_entry (
    id          bigint   PRIMARY KEY,
    fence       bigint   NOT NULL,  -- grows with every claim
    received_at bigint   NOT NULL,
    settled_at  bigint,
    surface     integer  NOT NULL,
    tenant      integer  NOT NULL,
    attempt     integer  NOT NULL,
    state       smallint NOT NULL,
    key         bytea    NOT NULL,  -- the hash of surface, tenant and key
    fingerprint bytea    NOT NULL,  -- the hash of the event's content
    label       text     NOT NULL,  -- the key as people read it
    reason      text,
    token       bigint  -- random: which claim of this fence may act; a final entry keeps it
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX oncegate_entry_key ON oncegate_entry (key);

-- What is not final: leases of claims, and entries that wait. Small and busy.
CREATE TABLE oncegate_open (
    entry          bigint   PRIMARY KEY,
    state          smallint NOT NULL,
    lease_until    bigint   NOT NULL,  -- in ledger time
    first_reserved bigint   NOT NULL,  -- in ledger time
    declared       integer,   -- a name: what the program declared at the first claim; NULL is unknown
    retry_at       bigint,    -- in ledger time: when a failed attempt may be made again; NULL is at once
    interruptions  smallint,  -- claims in a row that were taken over from a worker that died
    tried_from     bigint     -- in ledger time: from when on attempts count; NULL is from the first attempt
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000, vacuum_truncate = off
);
CREATE INDEX oncegate_open_due ON oncegate_open (state, lease_until);
-- Empty pages that stay. Without them a plan made while the table is small reads the whole table for one row, and the
-- server keeps that plan while the table grows by tens of thousands of dead rows. Connections of users and handlers'
-- transactions have such plans. With these pages every plan goes by the index.
INSERT INTO oncegate_open (entry, state, lease_until, first_reserved)
SELECT -number, 1, 0, 0 FROM generate_series(1, 2500) AS number;
DELETE FROM oncegate_open WHERE entry < 0;

-- The bulky parts, by month of first arrival, dropped a month at a time.
CREATE TABLE oncegate_payload (
    month integer NOT NULL,
    entry bigint  NOT NULL,
    body  bytea   NOT NULL,
    PRIMARY KEY (month, entry)
) PARTITION BY LIST (month);
CREATE TABLE oncegate_payload_other PARTITION OF oncegate_payload DEFAULT;

CREATE TABLE oncegate_outcome (
    month integer NOT NULL,
    entry bigint  NOT NULL,
    body  bytea   NOT NULL,
    PRIMARY KEY (month, entry)
) PARTITION BY LIST (month);
CREATE TABLE oncegate_outcome_other PARTITION OF oncegate_outcome DEFAULT;

-- Steps of claims that have not ended; a final outcome carries its own steps.
CREATE TABLE oncegate_step (
    entry      bigint   NOT NULL,
    name       text     NOT NULL,
    state      smallint NOT NULL,
    downstream integer  NOT NULL,
    result     bytea,
    resource   text,
    started_at bigint,   -- when the call was made
    declared   integer,  -- a name: what the downstream was declared to do when it was called
    last_call  bigint,   -- in ledger time: when the downstream may last have been called
    first_call bigint,   -- in ledger time: before it the downstream certainly was not called
    PRIMARY KEY (entry, name)
);

-- How far each ordered lane of incoming events has been applied; moves with the event's outcome.
CREATE TABLE oncegate_position (
    lane   bytea  PRIMARY KEY,  -- the hash of surface, tenant and lane
    seq    bigint NOT NULL,
    missed bigint NOT NULL,  -- how many numbers were passed over
    at     bigint NOT NULL
) WITH (fillfactor = 70);

-- Entries whose event came with a correlation id or a trace context.
CREATE TABLE oncegate_trace (
    entry   bigint PRIMARY KEY,
    trace   text   NOT NULL,
    context bytea  NOT NULL
);
CREATE INDEX oncegate_trace_trace ON oncegate_trace (trace);

-- For people and their tools.
CREATE VIEW oncegate_entries AS
SELECT entry.id,
       encode(entry.key, 'hex') AS key,
       surface.text             AS surface,
       tenant.text              AS tenant,
       entry.label              AS label,
       CASE entry.state
           WHEN 1 THEN 'in_flight' WHEN 2 THEN 'committed' WHEN 3 THEN 'failed' WHEN 4 THEN 'retryable'
           WHEN 5 THEN 'unknown' WHEN 6 THEN 'held' WHEN 7 THEN 'quarantined'
       END                      AS state,
       entry.attempt,
       entry.fence,
       to_timestamp(entry.received_at / 1000.0) AS received_at,
       to_timestamp(entry.settled_at / 1000.0)  AS settled_at,
       entry.reason
FROM oncegate_entry AS entry
JOIN oncegate_name AS surface ON surface.id = entry.surface
JOIN oncegate_name AS tenant ON tenant.id = entry.tenant;


-- Log -----------------------------------------------------------------------------------------------------------------

-- A reader goes by (xact, position) and stops before the oldest transaction still running, so that it never passes a
-- row that may yet commit.
CREATE TABLE oncegate_log (
    xact     xid8     NOT NULL DEFAULT pg_current_xact_id(),
    position bigint   GENERATED ALWAYS AS IDENTITY,
    entry    bigint   NOT NULL,
    kind     smallint NOT NULL,
    at       bigint   NOT NULL,
    actor    integer  NOT NULL,
    note     text,
    PRIMARY KEY (xact, position)
);
CREATE INDEX oncegate_log_entry ON oncegate_log (entry);
-- What people did and what was given up, for the journal that people read: few among the gate's own records.
CREATE INDEX oncegate_log_people ON oncegate_log (xact, position) WHERE kind > 10;


-- Feed ----------------------------------------------------------------------------------------------------------------

-- One row a tenant. The process that gives out positions locks it.
CREATE TABLE oncegate_feed_tenant (
    tenant integer PRIMARY KEY,
    last   bigint  NOT NULL,  -- the last position given out
    floor  bigint  NOT NULL DEFAULT 0  -- the last position removed
);

-- The last seq of every key, kept for ever. A transaction that publishes under the key locks its row until it commits.
CREATE TABLE oncegate_feed_key (
    tenant integer NOT NULL,
    seq    bigint  NOT NULL,
    key    text    NOT NULL,
    PRIMARY KEY (tenant, key)
) WITH (fillfactor = 70);

-- Events. A reader gives positions to rows that are committed, in the order of `id`.
CREATE TABLE oncegate_feed (
    id          bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position    bigint,  -- NULL until a reader gives one
    seq         bigint  NOT NULL,  -- of the key
    at          bigint  NOT NULL,
    tenant      integer NOT NULL,
    event_id    text    NOT NULL,
    key         text    NOT NULL,
    fingerprint bytea   NOT NULL,
    body        bytea   NOT NULL,
    context     bytea  -- the trace that the event belongs to
) WITH (fillfactor = 85);
CREATE UNIQUE INDEX oncegate_feed_event ON oncegate_feed (tenant, event_id);
CREATE UNIQUE INDEX oncegate_feed_position ON oncegate_feed (tenant, position);
CREATE INDEX oncegate_feed_fresh ON oncegate_feed (tenant, id) WHERE position IS NULL;
-- A context with a trace begins with {"trace_id":" and 32 hex digits.
CREATE INDEX oncegate_feed_trace ON oncegate_feed (substring(context FROM 14 FOR 32))
    WHERE substring(context FROM 1 FOR 13) = '\x7b2274726163655f6964223a22'::bytea;

-- How far each reader has acknowledged.
CREATE TABLE oncegate_feed_reader (
    tenant   integer NOT NULL,
    position bigint  NOT NULL,
    at       bigint  NOT NULL,
    reader   text    NOT NULL,
    PRIMARY KEY (tenant, reader)
);


-- Lanes ---------------------------------------------------------------------------------------------------------------

-- Destinations that were ever steered or throttled; others are active.
CREATE TABLE oncegate_destination (
    id         integer  PRIMARY KEY,  -- the number of the name
    not_before bigint   NOT NULL DEFAULT 0,  -- in ledger time
    since      bigint,
    state      smallint NOT NULL DEFAULT 1,
    reason     text
);

-- One row a lane, kept for ever: a seq is never used again. A transaction that adds to the lane locks its row until it
-- ends. That is why the columns that workers change are in a row of their own.
CREATE TABLE oncegate_lane (
    id          bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    last_seq    bigint   NOT NULL,
    destination integer  NOT NULL,
    tenant      integer  NOT NULL,
    idle        smallint NOT NULL,  -- 1: the head has nothing to do; 2: the last transaction that added ended that
    key         text     NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX oncegate_lane_key ON oncegate_lane (destination, tenant, key);
-- Lanes by their key alone, for traces.
CREATE INDEX oncegate_lane_of_key ON oncegate_lane (key);

-- What workers change of a lane.
CREATE TABLE oncegate_head (
    lane        bigint   PRIMARY KEY,
    seq         bigint   NOT NULL,  -- the head
    replay      bigint,  -- the seq of a past event that goes before the head
    due_at      bigint,  -- in ledger time: the next try or the end of a lease; NULL for idle and blocked lanes
    fence       bigint   NOT NULL,  -- grows with every lease
    holder      bigint,  -- random: who has the lease
    destination integer  NOT NULL,
    attempt     integer  NOT NULL,
    state       smallint NOT NULL,
    error       text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
-- Searched for work: idle and blocked lanes are not in it.
CREATE INDEX oncegate_head_due ON oncegate_head (destination, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX oncegate_head_open ON oncegate_head (lane) WHERE state <> 1;

-- Events in their lanes. Never changed: what is before the head is done.
CREATE TABLE oncegate_delivery (
    lane        bigint  NOT NULL,
    seq         bigint  NOT NULL,
    created_at  bigint  NOT NULL,
    destination integer NOT NULL,
    type        integer NOT NULL,
    event       text    NOT NULL,  -- the event's id
    fingerprint bytea   NOT NULL,
    context     bytea   NOT NULL,  -- the trace that the event belongs to
    payload     bytea   NOT NULL,
    PRIMARY KEY (lane, seq)
);
CREATE UNIQUE INDEX oncegate_delivery_event ON oncegate_delivery (destination, event);
-- A context with a trace begins with {"trace_id":" and 32 hex digits.
CREATE INDEX oncegate_delivery_trace ON oncegate_delivery (substring(context FROM 14 FOR 32))
    WHERE substring(context FROM 1 FOR 13) = '\x7b2274726163655f6964223a22'::bytea;

-- Deliveries that succeeded.
CREATE TABLE oncegate_ack (
    lane     bigint  NOT NULL,
    seq      bigint  NOT NULL,
    at       bigint  NOT NULL,
    fence    bigint  NOT NULL,
    attempts integer NOT NULL,
    note     text,
    PRIMARY KEY (lane, seq)
);

-- Deliveries that were given up.
CREATE TABLE oncegate_dead_letter (
    lane     bigint  NOT NULL,
    seq      bigint  NOT NULL,
    at       bigint  NOT NULL,
    fence    bigint  NOT NULL,
    attempts integer NOT NULL,
    error    text    NOT NULL,
    PRIMARY KEY (lane, seq)
);

-- The last failed attempts of each delivery. A delivery that succeeds needs no row: its acknowledgement says how.
CREATE TABLE oncegate_attempt (
    lane   bigint  NOT NULL,
    seq    bigint  NOT NULL,
    fence  bigint  NOT NULL,
    at     bigint  NOT NULL,
    took   integer NOT NULL,  -- milliseconds
    status integer,  -- of the HTTP response, if there was one
    error  text    NOT NULL,
    PRIMARY KEY (lane, seq, fence)
);

-- Past events that go once more before their lane goes on.
CREATE TABLE oncegate_replay (
    lane  bigint NOT NULL,
    seq   bigint NOT NULL,
    nonce bigint NOT NULL,  -- the replay's
    PRIMARY KEY (lane, seq)
);
CREATE INDEX oncegate_replay_nonce ON oncegate_replay (nonce);

-- Replays as they were asked for, with what became of them. Kept after their last event has gone.
CREATE TABLE oncegate_replay_order (
    id            bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    nonce         bigint  NOT NULL UNIQUE,  -- names the replay
    lane          bigint,  -- NULL for a replay of many lanes
    seq_from      bigint  NOT NULL,
    seq_to        bigint,
    at            bigint,
    deliveries    bigint  NOT NULL,
    lanes         bigint  NOT NULL,
    taken_back    bigint  NOT NULL DEFAULT 0,  -- deliveries that a cancellation removed
    cancelled_at  bigint,
    destination   integer NOT NULL,
    tenant        integer,  -- NULL for a replay of many lanes
    only_dead     boolean NOT NULL,
    actor         text    NOT NULL,
    reason        text    NOT NULL,
    cancelled_by  text,
    cancelled_why text,
    since         bigint,  -- only events emitted from this moment on
    until         bigint,  -- only events emitted before this moment
    type          text     -- only events of this type
);
CREATE INDEX oncegate_replay_order_place ON oncegate_replay_order (destination, id);
CREATE INDEX oncegate_replay_order_tenant ON oncegate_replay_order (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX oncegate_replay_order_lane ON oncegate_replay_order (lane, id) WHERE lane IS NOT NULL;


-- Review --------------------------------------------------------------------------------------------------------------

-- What events would change, for surfaces that declare it. Read by (xact, entry) like the log, so that a scan never
-- passes a row that may yet commit.
CREATE TABLE oncegate_content (
    xact         xid8   NOT NULL DEFAULT pg_current_xact_id(),
    entry        bigint PRIMARY KEY,
    hash         bytea  NOT NULL,
    target       text   NOT NULL,
    compensation text
);
CREATE INDEX oncegate_content_order ON oncegate_content (xact, entry);
CREATE INDEX oncegate_content_hash ON oncegate_content (hash, xact, entry);

-- Pairs of entries with the same content under different keys.
CREATE TABLE oncegate_duplicate (
    entry        bigint  PRIMARY KEY,  -- the later one
    other        bigint  NOT NULL,
    flagged_at   bigint  NOT NULL,
    undecided    boolean NOT NULL,
    dismissed_at bigint,
    dismissed_by integer,
    note         text
);
CREATE INDEX oncegate_duplicate_undecided ON oncegate_duplicate (entry) WHERE undecided;
-- Pairs that wait for a person, oldest first.
CREATE INDEX oncegate_duplicate_open ON oncegate_duplicate (entry) WHERE dismissed_at IS NULL;

-- The latest resource of each target for a while, and the one before it. The row's lock orders two processes that
-- bring a resource for the same target, and one statement returns both resources.
CREATE TABLE oncegate_target (
    about           bytea  NOT NULL PRIMARY KEY,  -- the hash of tenant, target, step and downstream
    entry           bigint NOT NULL,
    resource        text   NOT NULL,
    until           bigint NOT NULL,
    before_entry    bigint,
    before_resource text,
    before_until    bigint
);
CREATE INDEX oncegate_target_until ON oncegate_target (until);

-- Second resources of a key or a target.
CREATE TABLE oncegate_second (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    about          bytea  NOT NULL,
    target         text   NOT NULL,
    step           text   NOT NULL,
    place          text   NOT NULL,  -- the downstream
    entry          bigint NOT NULL,
    resource       text   NOT NULL,
    other          bigint NOT NULL,  -- the entry with the other resource
    other_resource text,  -- NULL where a worker returned the resource after it had lost its claim
    found_at       bigint NOT NULL,
    dismissed_at   bigint,
    dismissed_by   integer,
    note           text,
    UNIQUE (about, resource)
);
CREATE INDEX oncegate_second_open ON oncegate_second (id) WHERE dismissed_at IS NULL;
CREATE INDEX oncegate_second_entry ON oncegate_second (entry);


-- What events changed in users' own objects. Rows are only added, and removed when they are old.
CREATE TABLE oncegate_mutation (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entry  bigint  NOT NULL,
    name   text    NOT NULL,
    target text    NOT NULL,  -- the object's id, as JSON
    nth    integer NOT NULL,  -- tells changes of one object by one event apart
    before bytea,  -- NULL for an object that did not exist
    after  bytea,  -- NULL for an object that does not exist any more
    done   integer NOT NULL,  -- 0 for a row that was written before the call
    at     bigint  NOT NULL,
    xid    xid8    NOT NULL DEFAULT pg_current_xact_id()
);


-- Stats ---------------------------------------------------------------------------------------------------------------

-- Counters by minute; older minutes are added to their hours. Ordered by time: old rows lie together. Many processes
-- add to the same few rows, so there is room for new versions beside them.
CREATE TABLE oncegate_tally (
    minute  bigint  NOT NULL,  -- since 1970, in UTC
    surface integer NOT NULL,
    what    integer NOT NULL,
    count   bigint  NOT NULL,
    total   bigint  NOT NULL,  -- the sum of what was measured, such as microseconds
    PRIMARY KEY (minute, surface, what)
) WITH (fillfactor = 70);

-- Repeats of an entry, one row a class.
CREATE TABLE oncegate_repeat (
    entry    bigint   NOT NULL,
    class    smallint NOT NULL,
    first_at bigint   NOT NULL,
    last_at  bigint   NOT NULL,
    times    bigint   NOT NULL,
    evidence text     NOT NULL,
    PRIMARY KEY (entry, class)
);
-- Those that point at a sender: conflict, new id per retry, stale offset, split action.
CREATE INDEX oncegate_repeat_bug ON oncegate_repeat (last_at) WHERE class IN (4, 5, 6, 7);

-- Contents of new events for an hour, so that one event under two ids is found across processes.
CREATE TABLE oncegate_seen (
    surface   integer NOT NULL,
    content   bigint NOT NULL,  -- a hash
    entry     bigint NOT NULL,  -- the latest with this content
    at        bigint NOT NULL,
    shared_by integer NOT NULL,  -- how many entries had this content
    before    bigint,  -- the entry before the last write, which the writer reads back
    before_at bigint,  -- its time
    PRIMARY KEY (surface, content)
);
CREATE INDEX oncegate_seen_at ON oncegate_seen (surface, at);

-- The last repeats of each surface, so that a reader that began at an old position is found across processes.
CREATE TABLE oncegate_seen_repeat (
    surface  integer NOT NULL,
    at       bigint NOT NULL,
    entry    bigint NOT NULL,
    first_at bigint NOT NULL,
    fresh    integer NOT NULL,  -- how many new events the process had before it
    PRIMARY KEY (surface, at, entry)
);


-- Registry ------------------------------------------------------------------------------------------------------------

-- Small named documents of the ledger's users, such as endpoints.
CREATE TABLE oncegate_document (
    kind       text   NOT NULL,
    name       text   NOT NULL,
    version    bigint NOT NULL,
    body       bytea,  -- NULL for a document that was removed
    changed_at bigint NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Short-lived messages between processes, such as the state of an endpoint's circuit.
CREATE TABLE oncegate_notice (
    kind    text   NOT NULL,
    name    text   NOT NULL,
    writer  text   NOT NULL,
    body    bytea  NOT NULL,
    told_at bigint NOT NULL,  -- for people
    posted  bigint NOT NULL,  -- in ledger time
    until   bigint NOT NULL,  -- in ledger time
    PRIMARY KEY (kind, name, writer)
);
CREATE INDEX oncegate_notice_posted ON oncegate_notice (kind, posted);
