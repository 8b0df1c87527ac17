-- What persons did and what was given up, for the journal that people read: few among the gate's own records.
CREATE INDEX oncegate_log_people ON oncegate_log (xact, position) WHERE kind > 10;
