"""SQL text: what a statement does for repeats."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from msgspec import Struct

_DEDUPE: Final = re.compile(
    r"processed|dedup|idempot|inbox|seen|handled|consumed|reserv|claim|once|delivered|received_"
    r"|event_key|message_key"
    r"|message_log|webhook_event|event_log|applied_|already|_keys$|fence|receipts?$|event_ids?$"
    r"|message_ids?$", re.IGNORECASE
)  # fmt: skip
_STRICT: Final = re.compile(
    r"processed|dedup|idempot|inbox|seen|handled|consumed|received_|event_key|message_key|webhook_event"
    r"|applied_|_keys$"
    r"|event_ids?$|message_ids?$|message_log|event_log", re.IGNORECASE
)  # fmt: skip
_TABLE: Final = re.compile(
    r"\b(?:insert\s+(?:or\s+\w+\s+|ignore\s+)?into|update(?:\s+only)?|delete\s+from|merge\s+into"
    r"|replace\s+into|from)\s+[\"'`\[]?([\w.{}]+)",
    re.IGNORECASE,
)
_WINDOW: Final = re.compile(
    r"(now\(\)|current_timestamp|getdate\(\)|sysdate|localtimestamp"
    r"|clock_timestamp\(\))(\s+at time zone '\w+')?\s*-\s*"
    r"|datetime\(\s*'now'\s*,\s*'-|date_sub\(|dateadd\(|interval\s+'?\d+|age\(", re.IGNORECASE
)  # fmt: skip
_RELATIVE: Final = re.compile(r"\bset\b.*?\b(\w+)\s*=\s*(?:\w+\.)?\1\s*[-+*]", re.IGNORECASE | re.DOTALL)
_GUARD: Final = re.compile(
    r"\bwhere\b.*\b(status|state|processed\w*|claimed\w*|handled\w*|version|done|locked\w*|sent\w*"
    r"|paid\w*|charged\w*|notified\w*)"
    r"\b\s*(=|is\s+null|is\s+not|<>|!=|in\b|<)", re.IGNORECASE | re.DOTALL
)  # fmt: skip


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)


def holds_keys(name: str) -> bool:
    """Whether a table's or model's name says that it holds keys of events."""
    return bool(_DEDUPE.search(_snake(name)))


def surely_holds_keys(name: str) -> bool:
    """The same, without names that a business table may have."""
    return bool(_STRICT.search(_snake(name)))


class SqlKind(Enum):
    """What a statement is."""

    RESERVE = "insert that does nothing for a known key"
    INSERT = "insert"
    UPSERT = "insert or update"
    CAS = "update that applies only in an expected state"
    UPDATE = "update"
    DELETE = "delete"
    SELECT = "select"
    LOCK = "lock"
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"


class Sql(Struct, frozen=True):
    """A statement as the rules see it."""

    kind: SqlKind
    table: str
    window: bool = False
    relative: bool = False
    locks: bool = False
    is_key_alone: bool = False

    @property
    def is_dedupe(self) -> bool:
        """Whether the table's name says that it holds keys of events."""
        return holds_keys(self.table)


def read_sql(text: str) -> Sql | None:
    """Reads the first statement of a text; None for anything that is not SQL."""
    body = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text).strip()
    word = re.match(r"[A-Za-z]+", body)
    if word is None:
        return None
    first = word.group().lower()
    table = _TABLE.search(body)
    name = table.group(1).split(".")[-1] if table else ""
    simple = {
        "begin": SqlKind.BEGIN,
        "start": SqlKind.BEGIN,
        "commit": SqlKind.COMMIT,
        "rollback": SqlKind.ROLLBACK,
    }
    if first in simple and len(body) < 60:
        return Sql(simple[first], "")
    if first == "with" and re.search(r"\binsert\s+into\b", body, re.IGNORECASE):
        first = "insert"
        found = re.search(r"\binsert\s+into\s+[\"'`]?([\w.]+)", body, re.IGNORECASE)
        name = found.group(1).split(".")[-1] if found else name
    if first in ("insert", "replace", "merge") and table is not None:
        return _insert(first, body, name)
    if first == "update" and name:
        if _GUARD.search(body):
            return Sql(SqlKind.CAS, name, relative=bool(_RELATIVE.search(body)))
        return Sql(SqlKind.UPDATE, name, relative=bool(_RELATIVE.search(body)))
    if first == "delete" and name:
        return Sql(SqlKind.DELETE, name)
    if first in ("select", "with"):
        return _select(body, name)
    return Sql(SqlKind.LOCK, name) if first == "lock" else None


def _insert(first: str, body: str, name: str) -> Sql:
    lowered = " ".join(body.lower().split())
    if "do nothing" in lowered or re.match(r"insert (or )?ignore", lowered):
        columns = re.search(r"\(([^)]*)\)\s*values", lowered)
        return Sql(SqlKind.RESERVE, name, is_key_alone=columns is not None and "," not in columns[1])
    if "where not exists" in lowered:
        return Sql(SqlKind.RESERVE, name)
    if "xmax" in lowered:
        return Sql(SqlKind.RESERVE, name)
    if (
        first in ("replace", "merge")
        or "do update" in lowered
        or "on duplicate key" in lowered
        or "or replace" in lowered
    ):
        relative = bool(re.search(r"\b(\w+)\s*=\s*(?:\w+\.)?\1\s*[-+]", lowered))
        return Sql(SqlKind.UPSERT, name, relative=relative)
    return Sql(SqlKind.INSERT, name)


def _select(body: str, name: str) -> Sql | None:
    if re.search(r"pg_(try_)?advisory|get_lock\(", body, re.IGNORECASE):
        return Sql(SqlKind.LOCK, name)
    locks = bool(re.search(r"\bfor\s+(no\s+key\s+)?update\b|\bfor\s+share\b", body, re.IGNORECASE))
    return Sql(SqlKind.SELECT, name, window=bool(_WINDOW.search(body)), locks=locks)
