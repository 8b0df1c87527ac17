-- Entries that come in one batch lie on one page and are settled in one batch: there must be room on the
-- page for all of their new versions, or each of those costs an entry in both indexes. Counts for new pages.
ALTER TABLE oncegate_entry SET (fillfactor = 50);
