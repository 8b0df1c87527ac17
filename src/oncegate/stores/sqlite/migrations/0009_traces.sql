-- Entries whose event came with a correlation id or a trace context; what they emit says so itself.
CREATE TABLE oncegate_trace (
    entry   INTEGER PRIMARY KEY,
    trace   TEXT NOT NULL,
    context BLOB NOT NULL
);
CREATE INDEX oncegate_trace_trace ON oncegate_trace (trace);

-- The context of an emitted event begins with its trace, 32 hex digits behind {"trace_id":" where it has one.
CREATE INDEX oncegate_delivery_trace ON oncegate_delivery (substr(context, 14, 32))
    WHERE substr(context, 1, 13) = x'7b2274726163655f6964223a22';
