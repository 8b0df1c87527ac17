-- Contents of new events, as hashes: for an hour, so that one event under two ids is found across processes.
-- `before` and `before_at` are what the row said until it was last written: the writer is told of them.
CREATE TABLE oncegate_seen (
    surface   integer NOT NULL,
    content   bigint NOT NULL,
    entry     bigint NOT NULL,
    at        bigint NOT NULL,
    shared_by integer NOT NULL,
    before    bigint,
    before_at bigint,
    PRIMARY KEY (surface, content)
);
CREATE INDEX oncegate_seen_at ON oncegate_seen (surface, at);

-- The last repeats of each surface, so that a reader who began at an old position is found across processes.
CREATE TABLE oncegate_seen_repeat (
    surface  integer NOT NULL,
    at       bigint NOT NULL,
    entry    bigint NOT NULL,
    first_at bigint NOT NULL,
    fresh    integer NOT NULL,
    PRIMARY KEY (surface, at, entry)
);
