-- Small named documents of the ledger's users, such as endpoints. One that was removed has no body.
CREATE TABLE oncegate_document (
    kind       text   NOT NULL,
    name       text   NOT NULL,
    version    bigint NOT NULL,
    body       bytea,
    changed_at bigint NOT NULL,
    PRIMARY KEY (kind, name)
);
