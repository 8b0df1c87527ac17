-- When a failed attempt may be made again, in the ledger's own time; NULL is at once. How many claims in a row were
-- taken over from a worker that died: an event that kills its workers goes to a person, one that only fails waits.
ALTER TABLE oncegate_entry ADD COLUMN retry_at INTEGER;
ALTER TABLE oncegate_entry ADD COLUMN interruptions INTEGER;
