-- When the call was made that a step's record tells of. None for those of before.
ALTER TABLE oncegate_step ADD COLUMN started_at INTEGER;
