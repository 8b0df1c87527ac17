"""Names that say what a function does, for functions whose body cannot be read."""

from __future__ import annotations

import re
from typing import Final

RESERVES: Final = re.compile(
    r"^_*(try_?|atomic_?|maybe_?)?(reserve|claim|acquire|dedupe|deduplicate|dedup|setnx|begin_once"
    r"|ensure_once|run_once|once"
    r"|idempotent\w*|exactly_once\w*|check_and_set|compare_and_set|(put|set|add|insert|create|save|store"
    r"|mark|record)_(if_(absent|new|not_exists|unseen)|once"
    r"|unique)|first_(time|seen|delivery)|is_first\w*|(reserve|claim)_(key|event|message|delivery|once"
    r"|idempotency\w*|id)"
    r"|(start|register|record|begin)_once|check_and_(mark|reserve|record|store|insert|add)|reserved"
    r"|guard|once_only|only_once"
    r"|dedup\w*_(check|guard|lock)|mark_if_new|get_or_reserve)$", re.IGNORECASE
)  # fmt: skip
CHECKS: Final = re.compile(
    r"^_*(is_|was_|has_|has_been_|have_|already_|check_)*(already_)?(been_)?(processed|seen|handled"
    r"|duplicate\w*|known|consumed|applied|completed"
    r"|done|processed_already|seen_before|is_new|exists|new_event|repeat\w*|delivered|sent|charged|paid"
    r"|refunded|booked|shipped"
    r"|notified)(_before|_already|_event|_message)?$", re.IGNORECASE
)  # fmt: skip
MARKS: Final = re.compile(
    r"^_*(mark|remember|record|save|store|set|add|note|flag|register|insert|log)(_as)?_?(event_|message_"
    r"|key_|id_|order_)?(as_)?"
    r"(processed|seen|handled|done|consumed|complete|completed|applied|delivered|sent|processed_event"
    r"|key|processed_id)?(_event|_message|_key|_id)?$",
    re.IGNORECASE,
)
STRICT_MARKS: Final = re.compile(
    r"^_*(mark|remember|record|save|store|set|add|note|flag)(_as)?_?(event_|message_|key_|id_"
    r"|order_)?(as_)?"
    r"(processed|seen|handled|done|consumed|completed?|applied|delivered|sent|charged|paid|refunded"
    r"|shipped|notified|booked)(_event|_message|_key|_id)?$"
    r"|^_*(remember|mark)$", re.IGNORECASE
)  # fmt: skip
DECORATES: Final = re.compile(
    r"idempot|dedup|exactly_?once|^once$|_once$|only_once|unique_task|singleton|no_duplicates"
    r"|skip_duplicates|ignore_duplicates",
    re.IGNORECASE,
)
LOGS: Final = re.compile(
    r"^(debug|info|warning|warn|error|exception|critical|log|msg|print|inc|increment|incr|count|counter"
    r"|gauge|observe|timing|histogram"
    r"|capture_exception|capture_message|add_event|emit_metric|put_metric_data|put_metric|record_metric"
    r"|metric|track|distribution"
    r"|set_attribute|record_exception|success|notice|audit|bind)$"
)
LOG_OWNERS: Final = re.compile(
    r"log|metric|statsd|counter|sentry|span|stats|telemetry|structlog|prometheus|datadog|audit"
    r"|monitor|tracer|duplicates|repeats|drops",
    re.IGNORECASE,
)
DUPLICATE_ERRORS: Final = re.compile(
    r"integrity|unique|duplicate|already|conflict|conditionalcheck|keyexists|alreadyexists"
    r"|clienterror|writeerror",
    re.IGNORECASE,
)
