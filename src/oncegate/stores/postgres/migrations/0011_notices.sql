-- What processes tell each other, such as how an endpoint's circuit stands; gone after a while. Times are ticks,
-- but for told_at, which is for people.
CREATE TABLE oncegate_notice (
    kind    text   NOT NULL,
    name    text   NOT NULL,
    writer  text   NOT NULL,
    body    bytea  NOT NULL,
    told_at bigint NOT NULL,
    posted  bigint NOT NULL,
    until   bigint NOT NULL,
    PRIMARY KEY (kind, name, writer)
);
CREATE INDEX oncegate_notice_posted ON oncegate_notice (kind, posted);
