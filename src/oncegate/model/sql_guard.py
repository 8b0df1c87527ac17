"""What users' statements do to the transaction they run in.

One commit of the gate is of more than the statement's own event: of a whole batch. So no statement may
begin or end a transaction: only what begins with such a word can do it; servers refuse it in procedures,
and several statements in one text. And what a statement leaves behind until the end of its transaction,
other than rows, must not reach the next event: such a statement has a transaction of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

from oncegate.errors import UsageError

_BLANK: Final = re.compile(r"(?:[\s;]|--[^\n]*)*")
_BEGINS_OR_ENDS: Final = re.compile(
    r"(?:begin|start\s+transaction|commit|end|abort|prepare\s+transaction"
    r"|rollback(?!\s+(?:(?:work|transaction)\s+)?to\b))\b",
    re.IGNORECASE,
)

_ROWS: Final = re.compile(r"(?:insert|update|delete|replace|merge|with)\b", re.IGNORECASE)
_SETS: Final = re.compile(
    r"set_config", re.IGNORECASE
)  # for the transaction only, whatever stands around it


class Carries(IntEnum):
    """What an event brings with it to be run in the ledger's database."""

    NOTHING = 0
    ONE = 1  # one statement that changes rows
    SEVERAL = 2  # several, which may depend on each other
    SCOPED = 3  # one that may leave more than rows until its transaction ends: SET, SELECT, DDL, savepoints


_ONE: Final = Carries.ONE  # reading a member from its class takes a while


def carried(writes: Sequence[tuple[str, Any]]) -> Carries:
    """What an event's statements are, taken together."""
    if not writes:
        return Carries.NOTHING
    if len(writes) == 1:  # nearly every event that has any
        return _ONE if changes_rows_only(writes[0][0]) else Carries.SCOPED
    return Carries.SEVERAL if all(changes_rows_only(sql) for sql, _ in writes) else Carries.SCOPED


@lru_cache(maxsize=1024)
def changes_rows_only(sql: str) -> bool:
    """Whether a statement itself leaves nothing but rows behind; a function that it calls is not seen."""
    begins = all(_ROWS.match(sql, first_word(sql, nested=nested)) for nested in (True, False))
    return begins and _SETS.search(sql) is None


@lru_cache(maxsize=1024)
def check_statement(sql: str) -> None:
    """Raises UsageError for what begins or ends a transaction; savepoints are the user's own."""
    if not isinstance(sql, str):
        raise UsageError(f"a statement is text, not {type(sql).__name__}")
    for nested in (True, False):  # comments stand inside comments on PostgreSQL, not on SQLite
        found = _BEGINS_OR_ENDS.match(sql, first_word(sql, nested=nested))
        if found is not None:
            word = " ".join(found.group().upper().split())
            raise UsageError(f"{word} is no business write; leave COMMIT and ROLLBACK to the gate")


def first_word(sql: str, *, nested: bool) -> int:
    """Where a statement begins, behind blanks and comments; `nested` if these stand inside each other."""
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
