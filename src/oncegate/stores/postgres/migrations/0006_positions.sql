-- How far each ordered lane of incoming events has been applied; moves with the event's outcome.
CREATE TABLE oncegate_position (
    lane   bytea  PRIMARY KEY,
    seq    bigint NOT NULL,
    missed bigint NOT NULL,
    at     bigint NOT NULL
) WITH (fillfactor = 70);
