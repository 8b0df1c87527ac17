-- What travels with a published event: the journey that it belongs to. None for those of before.
ALTER TABLE oncegate_feed ADD COLUMN context BLOB;
CREATE INDEX oncegate_feed_trace ON oncegate_feed (substr(context, 14, 32))
    WHERE substr(context, 1, 13) = x'7b2274726163655f6964223a22';
