-- What was seen, by minute; older minutes are folded into their hours. Ordered by time: what is old lies
-- together. Many processes add to the same few rows, so there is room for new versions beside them.
CREATE TABLE oncegate_tally (
    minute  bigint  NOT NULL,
    surface integer NOT NULL,
    what    integer NOT NULL,
    count   bigint  NOT NULL,
    total   bigint  NOT NULL,
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
