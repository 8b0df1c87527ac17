-- Since when, in the ledger's own time, no row uses a name; NULL while one does, or while it is looked up. A name that
-- stays unused is removed. Its number is never given out again.
ALTER TABLE oncegate_name ADD COLUMN unused_since INTEGER;
