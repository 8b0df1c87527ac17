-- Small named documents of the ledger's users, such as endpoints. One that was removed has no body.
CREATE TABLE oncegate_document (
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    body       BLOB,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
