-- Since when, in the ledger's own time, no row uses a name; NULL while one does, or while it is looked up. A name that
-- stays unused is removed once every transaction before `unused_xact` has ended. Its number is never given out again.
ALTER TABLE oncegate_name ADD COLUMN unused_since bigint;
ALTER TABLE oncegate_name ADD COLUMN unused_xact xid8;
