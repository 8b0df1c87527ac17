"""Statements that begin or end a transaction: none of a user's may, where the gate ends it for them.

One commit of the gate is of more than the statement's own event: of a whole batch. Only what begins with
such a word can do it; servers refuse it in procedures, and several statements in one text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from oncegate.errors import UsageError

_BLANK: Final = re.compile(r"(?:[\s;]|--[^\n]*)*")
_BEGINS_OR_ENDS: Final = re.compile(
    r"(?:begin|start\s+transaction|commit|end|abort|prepare\s+transaction"
    r"|rollback(?!\s+(?:(?:work|transaction)\s+)?to\b))\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def check_statement(sql: str) -> None:
    """Raises UsageError for what begins or ends a transaction; savepoints are the user's own."""
    if not isinstance(sql, str):
        raise UsageError(f"a statement is text, not {type(sql).__name__}")
    for nested in (True, False):  # comments stand inside comments on PostgreSQL, not on SQLite
        found = _BEGINS_OR_ENDS.match(sql, _first_word(sql, nested=nested))
        if found is not None:
            word = " ".join(found.group().upper().split())
            raise UsageError(f"{word} is no business write; leave COMMIT and ROLLBACK to the gate")


def _first_word(sql: str, *, nested: bool) -> int:
    place = _after_blank(sql, 0)
    while sql.startswith("/*", place):
        place = _after_blank(sql, _after_comment(sql, place, nested=nested))
    return place


def _after_blank(sql: str, place: int) -> int:
    found = _BLANK.match(sql, place)
    return place if found is None else found.end()


def _after_comment(sql: str, place: int, *, nested: bool) -> int:
    depth = 0
    for mark in re.finditer(r"/\*|\*/", sql[place:]):
        depth = max(depth - 1, 0) if mark.group() == "*/" else depth + 1 if nested else 1
        if depth == 0:
            return place + mark.end()
    return len(sql)
