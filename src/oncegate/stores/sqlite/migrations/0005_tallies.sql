-- What was seen, by minute; older minutes are folded into their hours. Ordered by time: what is old lies
-- together.
CREATE TABLE oncegate_tally (
    minute  INTEGER NOT NULL,
    surface INTEGER NOT NULL REFERENCES oncegate_name (id),
    what    INTEGER NOT NULL,
    count   INTEGER NOT NULL,
    total   INTEGER NOT NULL,
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
