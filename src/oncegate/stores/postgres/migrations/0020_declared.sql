-- What the program declared when the first claim on a key was made: a text that is interned like a name. Recovery by a
-- newer program obeys the more careful of that and of its own. NULL: nothing was kept, which counts as unknown.
ALTER TABLE oncegate_open ADD COLUMN declared int;
-- What a step's downstream was declared to do when it was called, and when it may last have been called, in ticks.
ALTER TABLE oncegate_step ADD COLUMN declared int;
ALTER TABLE oncegate_step ADD COLUMN last_call bigint;
