-- The random token of a claim is on the entry itself, where every statement that acts for the claim compares it.
-- A final entry keeps it.
ALTER TABLE oncegate_entry ADD COLUMN token bigint;
UPDATE oncegate_entry SET token = open.token FROM oncegate_open AS open WHERE open.entry = id AND open.token IS NOT NULL;
ALTER TABLE oncegate_open DROP COLUMN token;
