-- Contents of new events, as hashes: for an hour, so that one event under two ids is found across processes.
CREATE TABLE oncegate_seen (
    surface   INTEGER NOT NULL REFERENCES oncegate_name (id),
    content   INTEGER NOT NULL,
    entry     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    shared_by INTEGER NOT NULL,
    PRIMARY KEY (surface, content)
) WITHOUT ROWID;
CREATE INDEX oncegate_seen_at ON oncegate_seen (surface, at);

-- The last repeats of each surface, so that a reader who began at an old position is found across processes.
CREATE TABLE oncegate_seen_repeat (
    surface  INTEGER NOT NULL REFERENCES oncegate_name (id),
    at       INTEGER NOT NULL,
    entry    INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    fresh    INTEGER NOT NULL,
    PRIMARY KEY (surface, at, entry)
) WITHOUT ROWID;
