-- The latest resource of each target for a while, and the one before it, so that one statement tells both.
CREATE TABLE oncegate_target (
    about           BLOB    NOT NULL PRIMARY KEY,
    entry           INTEGER NOT NULL,
    resource        TEXT    NOT NULL,
    until           INTEGER NOT NULL,
    before_entry    INTEGER,
    before_resource TEXT,
    before_until    INTEGER
) WITHOUT ROWID;
CREATE INDEX oncegate_target_until ON oncegate_target (until);

-- Second resources of a key or a target; `other_resource` is NULL for one that a late worker brought back.
CREATE TABLE oncegate_second (
    id             INTEGER PRIMARY KEY,
    about          BLOB    NOT NULL,
    target         TEXT    NOT NULL,
    step           TEXT    NOT NULL,
    place          TEXT    NOT NULL,
    entry          INTEGER NOT NULL,
    resource       TEXT    NOT NULL,
    other          INTEGER NOT NULL,
    other_resource TEXT,
    found_at       INTEGER NOT NULL,
    dismissed_at   INTEGER,
    dismissed_by   INTEGER,
    note           TEXT,
    UNIQUE (about, resource)
);
CREATE INDEX oncegate_second_open ON oncegate_second (id) WHERE dismissed_at IS NULL;
CREATE INDEX oncegate_second_entry ON oncegate_second (entry);
