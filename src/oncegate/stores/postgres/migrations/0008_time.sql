-- The ledger's own time. It goes on with the server's clock, but a step back does not take it back, and a
-- step ahead, or a pause in which nobody kept it, counts as 20 s at most: see docs/decisions/0003.
CREATE TABLE oncegate_ticks (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    ticks bigint  NOT NULL,
    wall  bigint  NOT NULL
) WITH (fillfactor = 10);

CREATE FUNCTION oncegate_clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

INSERT INTO oncegate_ticks (ticks, wall) SELECT now, now FROM oncegate_clock() AS now;

CREATE FUNCTION oncegate_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ticks + least(greatest(oncegate_clock() - wall, 0), 20000) FROM oncegate_ticks
$$;
