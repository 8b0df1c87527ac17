-- What travels with a published event: the journey that it belongs to. None for those of before.
ALTER TABLE oncegate_feed ADD COLUMN context bytea;
CREATE INDEX oncegate_feed_trace ON oncegate_feed (substring(context FROM 14 FOR 32))
    WHERE substring(context FROM 1 FOR 13) = '\x7b2274726163655f6964223a22'::bytea;
