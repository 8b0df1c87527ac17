-- Pairs that nobody has dismissed, oldest first: those that wait for a person, among however many were.
CREATE INDEX oncegate_duplicate_open ON oncegate_duplicate (entry) WHERE dismissed_at IS NULL;
