-- From when on an event's attempts count for its horizon, in the ledger's own time: a person let it be tried again.
-- NULL is from its first attempt.
ALTER TABLE oncegate_open ADD COLUMN tried_from bigint;
