-- What is open is a small table, and vacuum gave its empty pages back. A plan made at such a moment reads the whole table
-- for one row, and is kept while the table grows by tens of thousands of dead rows: users' own connections end claims with
-- such plans, and so do handlers' transactions. With these pages, which stay, every plan goes by the index.
ALTER TABLE oncegate_open SET (vacuum_truncate = off);
INSERT INTO oncegate_open (entry, state, lease_until, first_reserved)
SELECT -number, 1, 0, 0 FROM generate_series(1, 2500) AS number;
DELETE FROM oncegate_open WHERE entry < 0;
