-- What events would change, for surfaces that declare it. SQLite has one writer, so entries are in commit order.
CREATE TABLE oncegate_content (
    entry        INTEGER PRIMARY KEY,
    hash         BLOB    NOT NULL,
    target       TEXT    NOT NULL,
    compensation TEXT
);
CREATE INDEX oncegate_content_hash ON oncegate_content (hash, entry);

-- Pairs of entries with the same content under different keys; the later one is `entry`.
CREATE TABLE oncegate_duplicate (
    entry        INTEGER PRIMARY KEY,
    other        INTEGER NOT NULL,
    flagged_at   INTEGER NOT NULL,
    undecided    INTEGER NOT NULL,
    dismissed_at INTEGER,
    dismissed_by INTEGER REFERENCES oncegate_name (id),
    note         TEXT
);
CREATE INDEX oncegate_duplicate_undecided ON oncegate_duplicate (entry) WHERE undecided = 1;
