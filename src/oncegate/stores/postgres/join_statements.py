"""The ledger's statements as a user's own driver can send them: one item, plain parameters.

Derived from `statements`, so that both say the same. Each also makes sure that it runs on the ledger's own
database and changes nothing elsewhere: entries of two ledgers may have the same numbers.
"""

from __future__ import annotations

import re
from typing import Final

from oncegate.stores.postgres import statements

_HERE: Final = (
    "WITH here AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM oncegate_meta"
    " WHERE name = 'ledger_id' AND value = %s::text) AS same),"
)


def _one(sql: str) -> str:
    """Takes each array apart: its only element becomes a parameter."""
    return re.sub(r"%s::(\w+)\[\]", r"ARRAY[%s::\1]", sql)


def _replaced(sql: str, old: str, new: str) -> str:
    before, found, after = sql.partition(old)
    if not found:
        raise ValueError(f"the statement has changed: {old!r} is not in it")
    return before + new + after


def _settle() -> str:
    sql = _replaced(_one(statements.SETTLE), "WITH", _HERE)
    sql = _replaced(sql, "target.state = 1", "target.state = 1 AND (SELECT same FROM here)")
    return _replaced(
        sql, "SELECT place::int FROM ended", "SELECT same, EXISTS (SELECT 1 FROM ended) FROM here"
    )


def _reserve() -> str:
    sql = _replaced(_one(statements.RESERVE), "WITH", _HERE)
    sql = _replaced(
        sql, "FROM wanted ORDER BY place", "FROM wanted WHERE (SELECT same FROM here) ORDER BY place"
    )
    sql = _replaced(sql, "SELECT number, state, received_at, %s, reason",
                    "SELECT number, state, received_at, %s::int, reason")  # fmt: skip
    return _replaced(
        sql,
        "SELECT place::int, number, now FROM wanted JOIN fresh ON id = number, clock",
        "SELECT same, (SELECT id FROM fresh), now FROM here, clock",
    )


SETTLE: Final = _settle()
RESERVE: Final = _reserve()
KNOWN: Final = _replaced(statements.KNOWN, "ANY(%s)", "ANY(ARRAY[%s::bytea])")
CLEAR_STEPS: Final = _replaced(statements.CLEAR_STEPS, "ANY(%s)", "ANY(ARRAY[%s::bigint])")
