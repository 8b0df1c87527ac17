"""What causes each error of `oncegate.errors`, and what to do next: the words of docs/errors.md.

A test compares the names with the classes. A new error needs its line here.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Advice(NamedTuple):
    """The cause of an error and the next step."""

    cause: str
    next_step: str


ADVICE: Final[dict[str, Advice]] = {
    "OncegateError": Advice(
        "This is the root of the tree. oncegate raises its subclasses.",
        "Catch it where you want every error that oncegate raises on purpose.",
    ),
    "ConfigError": Advice(
        "An argument, a setting or a registration is wrong.",
        "Correct what the message names and start again. Nothing ran.",
    ),
    "BadTemplate": Advice(
        "The key template has no field, too many fields, a transport-level field such as a message id, "
        "or a character that is not allowed.",
        "Write a template of fields that the sender controls, such as `{order_id}`.",
    ),
    "BadDuration": Advice(
        "The text is not a number with a unit.", "Write `90s`, `15m`, `24h` or `7d`, or pass a `timedelta`."
    ),
    "BadUrl": Advice(
        "The ledger's address has an unknown scheme, an unknown option or no file name.",
        "Use `sqlite:///ledger.db` or `postgresql://user:password@host/database`.",
    ),
    "UnknownSurface": Advice(
        "The surface name is misspelled, or the module that registers it was not imported.",
        "Compare with the registered names in the message. Import the handlers before `admit`.",
    ),
    "BadSource": Advice(
        "The queue is missing, or a setting of it would lose messages or acknowledge them early.",
        "Change the queue or the setting that the message names, then start the consumer again.",
    ),
    "Unacceptable": Advice(
        "An event, an endpoint or an operator's command is not valid. Nothing was stored or sent.",
        "Correct it as the message says. Over HTTP the status is 422.",
    ),
    "BadEndpoint": Advice(
        "The address is not a public https address, the name is taken, or a setting is out of range.",
        "Use a public https address. For development set `ONCEGATE_ALLOW_LOOPBACK=1`; for your own network "
        "`ONCEGATE_ALLOW_NETWORKS`.",
    ),
    "UnknownEndpoint": Advice(
        "No endpoint has that name in this ledger.",
        "Run `oncegate endpoints list`, then `oncegate endpoints add NAME URL`. Check `ONCEGATE_URL`.",
    ),
    "BadSecret": Advice(
        "A signing secret has the wrong prefix, length or base64, or its environment variable is not set.",
        "Use a secret that `oncegate endpoints add` printed, or set the variable where you deliver.",
    ),
    "BadHeader": Advice(
        "A header has a reserved name, a line break or another character that cannot be sent.",
        "Choose another name. The names that the sender sets itself are listed in [Sending](sending.md).",
    ),
    "BadOutgoing": Advice(
        "The event's id, key, type or payload is empty, too long or not JSON.",
        "Correct the arguments of `emit`. Nothing was stored.",
    ),
    "EventError": Advice(
        "The event cannot be read as it is.",
        "Catch one of the subclasses, or let the gate quarantine the event.",
    ),
    "InputRefused": Advice(
        "A field of the key template is missing, or has another type than the template says.",
        "Look at `path` and `reason`. If the sender changed its format, change the template "
        "([Changing keys](changing-keys.md)).",
    ),
    "BadTimestamp": Advice(
        "A time has no offset from UTC, or is not in RFC 3339.",
        "Send `2026-11-18T02:00:00Z` or a time with an offset such as `+01:00`.",
    ),
    "EventNotStorable": Advice(
        "The event is not JSON, or is larger than the ledger stores.",
        "Send texts, numbers, lists and objects. Put large content elsewhere and send a reference.",
    ),
    "RequestRefused": Advice(
        "A webhook request is not valid. `status` has the HTTP status.",
        "Answer with that status. Nothing ran.",
    ),
    "MalformedRequest": Advice(
        "A header or the body is missing, is not strict JSON, or is nested too deep.",
        "Answer 400. The sender must correct the request.",
    ),
    "NotAuthentic": Advice(
        "The signature does not fit any secret, or its timestamp is more than five minutes away.",
        "Answer 401. Compare the secrets on both sides, and both clocks.",
    ),
    "RequestTooLarge": Advice(
        "The body is larger than the limit.", "Answer 413. The sender must send less."
    ),
    "EncodedBody": Advice(
        "The body is compressed.", "Answer 415. Switch compression off at the sender or at the proxy."
    ),
    "NotRun": Advice(
        "The effect did not run, and nothing failed.",
        "Catch a subclass to tell the reasons apart.",
    ),
    "Busy": Advice(
        "Another worker runs this key at the moment, or a failed attempt waits for its next try.",
        "Come again after `retry_after_seconds`, or set `on_busy=` to wait or to acknowledge.",
    ),
    "Paused": Advice(
        "An operator has paused the surface.",
        "Come again after `retry_after_seconds`. The journal says who paused it, and why.",
    ),
    "Backlogged": Advice(
        "Too many events wait: for one destination, for one key, or for a person.",
        "Come again later; the event was not stored. Run `oncegate held list` or `oncegate lanes blocked`.",
    ),
    "Conflict": Advice(
        "The key is known, and this event has other content.",
        "Use a new key for a new intent. If the sender adds changing fields, list them in `ignore=`.",
    ),
    "Quarantined": Advice(
        "A field is missing or malformed, or the event's time is out of bounds.",
        "An operator decides: `oncegate quarantine list`, then `release` or `discard`.",
    ),
    "OutcomeErased": Advice(
        "The key is known, and what came of it was erased on request or after its payload retention.",
        "Look the result up at the downstream. The event does not run again.",
    ),
    "Held": Advice(
        "Only a person can decide what happens next with this event.",
        "An operator decides: `oncegate held list`, then `approve` or `reject`.",
    ),
    "CursorRefused": Advice(
        "The cursor was changed, or another ledger or tenant issued it.",
        "Use `next_cursor` of an earlier page unchanged.",
    ),
    "CursorExpired": Advice(
        "The events after the cursor were pruned, or the ledger was restored from an older copy.",
        "Read on with `since=oldest`.",
    ),
    "NotApplied": Advice(
        "Your code raises it: the effect did not happen.",
        "Raise it from an effect or handler where you know this. The gate tries again.",
    ),
    "Failed": Advice(
        "Your code raises it: the effect can never succeed.",
        "Raise it for final failures. The gate records the failure and never runs the key again.",
    ),
    "RecordedFailure": Advice(
        "An earlier run of this key ended with `Failed`.",
        "Do not retry. Use a new key if the intent is new.",
    ),
    "ClaimLost": Advice(
        "The worker stalled longer than its lease, and another worker took the key over.",
        "Stop. The other worker finishes the event, and this worker's write changed nothing.",
    ),
    "OutcomeUnknown": Advice(
        "A call may or may not have taken effect, and the downstream has neither keys nor a probe.",
        "Find out at the downstream, then record it: `oncegate held approve` or `reject`.",
    ),
    "BadRecording": Advice(
        "The recording is damaged, truncated, too large or of another version.",
        "Record again, or use the oncegate version that made it.",
    ),
    "JournalForked": Advice(
        "The ledger was changed, or went back to an older copy, after a head was published.",
        "Keep both, run `oncegate journal verify --head FILE`, and find out who changed the ledger.",
    ),
    "NoteRefused": Advice(
        "A signed note was changed, is cut short, or has no signature of a known key.",
        "Compare the verifier keys. If they are right, treat the note as forged.",
    ),
    "RulingRefused": Advice(
        "The entry changed after the operator saw it, or the decision does not fit its state.",
        "Read the entry again and decide again. Nothing changed.",
    ),
    "SnapshotError": Advice(
        "A belief raised or returned two objects with one id, a part or a signature is wrong, or the place "
        "of the snapshots cannot be reached.",
        "Correct what the message names. `oncegate snapshots verify` shows where a chain breaks.",
    ),
    "NoSuchSnapshot": Advice(
        "No snapshot has that number or hash, or none was taken yet.",
        "Look with `oncegate snapshots list`.",
    ),
    "SnapshotFork": Advice(
        "The storage holds a snapshot that this ledger did not take: two ledgers share a place, or it was "
        "exchanged.",
        "Give each ledger its own place. If there is only one, compare `oncegate snapshots list` with the "
        "journal.",
    ),
    "PlanRefused": Advice(
        "The plan has expired, was approved or cancelled before, its hash is another one, or its data is "
        "incomplete.",
        "Look at the plan with `oncegate rollback show`, or make a new one.",
    ),
    "SourceUnavailable": Advice(
        "The broker cannot be reached, or did not answer.",
        "Nothing to do: the consumer tries again. Messages that were not acknowledged are delivered again.",
    ),
    "UsageError": Advice(
        "The handler used `once` wrongly: an effect after the commit, a `COMMIT` in a business write, "
        "a call that was not awaited.",
        "Change the handler as the message says.",
    ),
    "StoreError": Advice(
        "The ledger failed.", "Catch a subclass. No effect runs without a durable reservation."
    ),
    "StoreUnavailable": Advice(
        "The ledger cannot be reached or written.",
        "Check the address, the network, the disk and the rights with `oncegate doctor`, then try again.",
    ),
    "PartUnavailable": Advice(
        "A part of a ledger on several servers cannot be reached.",
        "Bring it back; keys of the other servers go on. Nothing was run for this event.",
    ),
    "StoreFull": Advice("The ledger's disk is full.", "Free space, then try again. Nothing was written."),
    "StoreBusy": Advice(
        "Another process holds the lock for longer than this one waits.",
        "Try again. If it persists, look for a process that stands still inside a write.",
    ),
    "StoreUnknown": Advice(
        "The connection was lost during a commit.",
        "Send the same event again: the gate reads back what happened before it decides.",
    ),
    "StoreRejected": Advice(
        "The database refused a statement of your handler.",
        "Correct the statement or its parameters. The event's writes were undone.",
    ),
    "StoreCorrupt": Advice(
        "The file is damaged, or it is not a ledger.",
        "Restore it from a backup. Do not delete it: without its keys, old events run again.",
    ),
    "SchemaMismatch": Advice(
        "The ledger's schema is missing, older or newer than this version needs.",
        "Run `oncegate migrate`. For a newer schema, install the oncegate that wrote it.",
    ),
    "DurabilityRefused": Advice(
        "The ledger's settings could lose committed records.",
        "Use a local disk. On PostgreSQL set `fsync`, `full_page_writes` and `synchronous_commit` to `on`.",
    ),
}
