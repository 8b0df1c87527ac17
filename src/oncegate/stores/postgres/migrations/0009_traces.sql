-- Entries whose event came with a correlation id or a trace context; what they emit says so itself.
CREATE TABLE oncegate_trace (
    entry   bigint PRIMARY KEY,
    trace   text   NOT NULL,
    context bytea  NOT NULL
);
CREATE INDEX oncegate_trace_trace ON oncegate_trace (trace);

-- The context of an emitted event begins with its trace, 32 hex digits behind {"trace_id":" where it has one.
CREATE INDEX oncegate_delivery_trace ON oncegate_delivery (substring(context FROM 14 FOR 32))
    WHERE substring(context FROM 1 FOR 13) = '\x7b2274726163655f6964223a22'::bytea;
