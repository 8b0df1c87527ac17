-- What processes tell each other, such as how an endpoint's circuit stands; gone after a while. Times are ticks,
-- but for told_at, which is for people.
CREATE TABLE oncegate_notice (
    kind    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    writer  TEXT    NOT NULL,
    body    BLOB    NOT NULL,
    told_at INTEGER NOT NULL,
    posted  INTEGER NOT NULL,
    until   INTEGER NOT NULL,
    PRIMARY KEY (kind, name, writer)
);
CREATE INDEX oncegate_notice_posted ON oncegate_notice (kind, posted);
