-- How far each ordered lane of incoming events has been applied; moves with the event's outcome.
CREATE TABLE oncegate_position (
    lane   BLOB PRIMARY KEY,
    seq    INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    at     INTEGER NOT NULL
) WITHOUT ROWID;
