"""What a call outside the project means: the tables, asked in order of certainty."""

from __future__ import annotations

import ast
import re
from typing import Final

from oncegate.audit.flow.calls import CallInfo
from oncegate.audit.flow.events import CodeEvent, Keyed, KeyExpr, Kind
from oncegate.audit.project.scope import last_name
from oncegate.audit.tables.acks import ack_of, gives_back
from oncegate.audit.tables.effects import STRONG, effect_of, is_idempotent_call
from oncegate.audit.tables.keys import key_of
from oncegate.audit.tables.making import key_expr, make
from oncegate.audit.tables.names import CHECKS, LOG_OWNERS, LOGS, RESERVES, STRICT_MARKS
from oncegate.audit.tables.stores import store_event

_FETCHES: Final = frozenset({"fetchone", "fetchall", "fetchval", "scalar_one_or_none", "first", "one_or_none", "scalar", "scalars",
                             "mappings", "all", "fetchmany"})  # fmt: skip
_ASIDE: Final = re.compile(
    r"dlq|dead_?-?letter|quarantine|poison|parking|retry_(topic|queue|exchange)|[.-]retry\b|errors_topic",
    re.IGNORECASE,
)
# `future.done()` and `order.exists()` ask about no key.
_SAYS_REPEAT: Final = re.compile(r"duplicate|already|seen|processed|handled|repeat", re.IGNORECASE)
_ENQUEUES: Final = frozenset(
    {
        "delay",
        "apply_async",
        "enqueue",
        "enqueue_job",
        "send_task",
        "kiq",
        "send_with_options",
        "enqueue_call",
    }
)


def classify(call: CallInfo) -> CodeEvent:
    """The event of a call that no function of the project answers."""
    if _logs(call):
        return make(Kind.LOG, call)
    acked = ack_of(call)
    if acked:
        return make(Kind.ACK, call, library=acked)
    if call.method == "begin_transaction" and "producer" in f"{call.receiver} {call.full}".lower():
        return make(Kind.RESERVE, call, library="kafka", subject="transaction")
    if _is_admission(call):
        return make(Kind.RESERVE, call, library="oncegate", subject="oncegate")
    outside = effect_of(call)
    if outside is not None and _is_dead_letter(call):
        return make(Kind.NACK, call)
    if outside is not None:
        keyed, node = key_of(call)
        key = KeyExpr(node, call.scope) if node is not None else None
        flags = frozenset({"deduplicates"}) if outside.deduplicates else frozenset()
        flags |= {"retried any"} if call.package == "aiohttp_retry" else frozenset()
        keyed = Keyed.YES if outside.deduplicates else keyed
        return make(Kind.EFFECT, call, library=outside.library, takes_key=outside.takes_key, keyed=keyed, key=key,
                    by_name=outside.by_name, flags=flags)  # fmt: skip
    stored = store_event(call)
    if stored is not None:
        return stored
    if is_idempotent_call(call):
        return make(Kind.OTHER, call, flags=frozenset({"work"}))
    return _by_name(call)


def _is_dead_letter(call: CallInfo) -> bool:
    """Whether a message is put aside, or put back, by publishing it elsewhere."""
    words = ast.unparse(call.node) if len(ast.dump(call.node)) < 4_000 else ""
    return bool(_ASIDE.search(words))


def _logs(call: CallInfo) -> bool:
    if call.method == "print" and not call.receiver:
        return True
    if not LOGS.match(call.method):
        return False
    if call.package in (
        "logging",
        "structlog",
        "loguru",
        "sentry_sdk",
        "prometheus_client",
        "statsd",
        "opentelemetry",
    ):
        return True
    return bool(LOG_OWNERS.search(call.receiver)) or call.method in (
        "inc",
        "capture_exception",
        "capture_message",
    )


def _is_admission(call: CallInfo) -> bool:
    owned = call.package == "oncegate" or call.receiver_name == "gate"
    return call.method in ("admit", "admit_sync", "accept") and owned


def _by_name(call: CallInfo) -> CodeEvent:
    if gives_back(call):
        return make(Kind.NACK, call)
    if call.method in _ENQUEUES:
        return make(Kind.OTHER, call, library="task", flags=frozenset({"enqueue"}))
    name, key = call.method, key_expr(call.argument(0), call)
    if name == "acquire" and not re.search(
        r"lock|mutex|lease|dedup|idempot|once|guard", call.receiver, re.IGNORECASE
    ):
        return make(Kind.OTHER, call)
    if RESERVES.match(name):
        is_lock = name in ("acquire", "lock", "try_lock")
        return make(
            Kind.LOCK if is_lock else Kind.RESERVE,
            call,
            key=None if is_lock else key,
            by_name=True,
            by_result=not _is_guard(call),
        )
    if name in ("transaction", "begin", "atomic"):
        return make(Kind.OTHER, call)
    if CHECKS.match(name) and (call.node.args or call.node.keywords or _SAYS_REPEAT.search(name)):
        return make(Kind.CHECK, call, key=key, by_name=True)
    if STRICT_MARKS.match(name):
        return make(Kind.MARK, call, key=key, by_name=True)
    if name in _FETCHES:
        return make(Kind.FETCH, call)
    if name in ("commit", "rollback", "flush"):
        kind = {"commit": Kind.COMMIT, "flush": Kind.FLUSH}.get(name, Kind.ROLLBACK)
        return make(kind, call)
    if STRONG.match(name) and call.receiver:
        return make(Kind.DYNAMIC, call, by_name=True)
    return make(Kind.OTHER, call)


def _is_guard(call: CallInfo) -> bool:
    """Whether a reservation by name is the kind that raises: a guard, or one used as a context."""
    return call.method.lower().lstrip("_") in ("guard", "reserved", "once_only", "only_once", "idempotent")


def is_transaction(node: ast.expr, call: CallInfo | None) -> str:
    """Whether a `with` item opens a transaction: `block`, `soft` (a connection), or empty."""
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name in (
            "atomic",
            "begin",
            "begin_nested",
            "transaction",
            "in_transaction",
            "start_transaction",
        ):
            is_kafka = call is not None and "producer" in call.receiver.lower()
            is_lookalike = call is not None and call.package in ("sentry_sdk", "elasticapm", "newrelic")
            return "" if is_kafka or is_lookalike else "block"
        if name == "connect" and call is not None and call.package in ("psycopg", "sqlite3", "psycopg2"):
            return "soft"
        return ""
    name = last_name(node).lower().strip("_")
    return "soft" if name in ("conn", "connection", "db_conn", "pg_conn", "dbconn") else ""
