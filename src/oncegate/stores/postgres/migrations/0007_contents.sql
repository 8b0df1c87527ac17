-- What events would change, for surfaces that declare it. Walked by (xact, entry) like the log, so that a
-- scan never passes a row that may yet commit.
CREATE TABLE oncegate_content (
    xact         xid8   NOT NULL DEFAULT pg_current_xact_id(),
    entry        bigint PRIMARY KEY,
    hash         bytea  NOT NULL,
    target       text   NOT NULL,
    compensation text
);
CREATE INDEX oncegate_content_order ON oncegate_content (xact, entry);
CREATE INDEX oncegate_content_hash ON oncegate_content (hash, xact, entry);

-- Pairs of entries with the same content under different keys; the later one is `entry`.
CREATE TABLE oncegate_duplicate (
    entry        bigint  PRIMARY KEY,
    other        bigint  NOT NULL,
    flagged_at   bigint  NOT NULL,
    undecided    boolean NOT NULL,
    dismissed_at bigint,
    dismissed_by integer,
    note         text
);
CREATE INDEX oncegate_duplicate_undecided ON oncegate_duplicate (entry) WHERE undecided;
