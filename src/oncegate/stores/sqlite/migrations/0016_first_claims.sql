-- A claim that runs for the first time is in no index: most are over before anybody could ask for them, and
-- an entry made and removed again costs two pages an event. They are found by their numbers (the newest), and
-- those that last longer by a list of their own.
CREATE TABLE oncegate_lasting (entry INTEGER PRIMARY KEY);
INSERT INTO oncegate_lasting
    SELECT id FROM oncegate_entry INDEXED BY oncegate_entry_open
    WHERE state NOT IN (2, 3) AND state = 1 AND fence = id;
INSERT INTO oncegate_meta (name, value) SELECT 'listed', coalesce(max(id), 0) FROM oncegate_entry;
DROP INDEX oncegate_entry_open;
CREATE INDEX oncegate_entry_open ON oncegate_entry (state, lease_until)
    WHERE state NOT IN (2, 3) AND (state <> 1 OR fence <> id);
