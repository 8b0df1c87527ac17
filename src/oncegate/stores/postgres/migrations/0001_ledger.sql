-- Facts of the ledger.
CREATE TABLE oncegate_meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO oncegate_meta (name, value) VALUES ('ledger_id', gen_random_uuid()::text);

-- Names of surfaces, tenants, downstreams and actors, written once.
CREATE TABLE oncegate_name (
    id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    text text NOT NULL UNIQUE
);

-- Numbers of entries and fences of claims: one sequence, so that neither is ever used again.
CREATE SEQUENCE oncegate_number AS bigint;

CREATE FUNCTION oncegate_month(at bigint) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (extract(year FROM to_timestamp(at / 1000) AT TIME ZONE 'UTC') * 100
          + extract(month FROM to_timestamp(at / 1000) AT TIME ZONE 'UTC'))::integer
$$;

-- One narrow row a key, never split by time: a key stays unique across every month. No index mentions
-- `state`, so that settling an entry is a HOT update.
CREATE TABLE oncegate_entry (
    id          bigint   PRIMARY KEY,
    fence       bigint   NOT NULL,
    received_at bigint   NOT NULL,
    settled_at  bigint,
    surface     integer  NOT NULL,
    tenant      integer  NOT NULL,
    attempt     integer  NOT NULL,
    state       smallint NOT NULL,
    key         bytea    NOT NULL,
    fingerprint bytea    NOT NULL,
    label       text     NOT NULL,
    reason      text
) WITH (fillfactor = 85);
CREATE UNIQUE INDEX oncegate_entry_key ON oncegate_entry (key);

-- What is not final: leases of claims, and entries that wait. Small and busy.
CREATE TABLE oncegate_open (
    entry          bigint   PRIMARY KEY,
    state          smallint NOT NULL,
    lease_until    bigint   NOT NULL,
    first_reserved bigint   NOT NULL,
    token          bigint
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX oncegate_open_due ON oncegate_open (state, lease_until);

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
    PRIMARY KEY (entry, name)
);

-- The log. A reader goes by (xact, position) and stops before the oldest transaction still running, so
-- that it never passes a row that may yet commit.
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
