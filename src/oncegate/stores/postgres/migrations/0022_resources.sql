-- The latest resource of each target for a while, and the one before it: the row's lock orders two processes
-- that bring a resource for the same target, and one statement tells both resources.
CREATE TABLE oncegate_target (
    about           bytea  NOT NULL PRIMARY KEY,
    entry           bigint NOT NULL,
    resource        text   NOT NULL,
    until           bigint NOT NULL,
    before_entry    bigint,
    before_resource text,
    before_until    bigint
);
CREATE INDEX oncegate_target_until ON oncegate_target (until);

-- Second resources of a key or a target; `other_resource` is NULL for one that a late worker brought back.
CREATE TABLE oncegate_second (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    about          bytea  NOT NULL,
    target         text   NOT NULL,
    step           text   NOT NULL,
    place          text   NOT NULL,
    entry          bigint NOT NULL,
    resource       text   NOT NULL,
    other          bigint NOT NULL,
    other_resource text,
    found_at       bigint NOT NULL,
    dismissed_at   bigint,
    dismissed_by   integer,
    note           text,
    UNIQUE (about, resource)
);
CREATE INDEX oncegate_second_open ON oncegate_second (id) WHERE dismissed_at IS NULL;
CREATE INDEX oncegate_second_entry ON oncegate_second (entry);
