"""The ledger's statements as a user's own driver can send them: one item, plain parameters.

Derived from `statements`, so that both say the same. Each also makes sure that it runs on the ledger's own
database and changes nothing elsewhere: entries of two ledgers may have the same numbers.
"""

from __future__ import annotations

import re
from typing import Final

from oncegate.stores.postgres import statements
from oncegate.stores.postgres.statements import replaced

# What is answered for must be durable, whatever the user's connection is set to: until its commit it is.
_HERE: Final = (
    "WITH here AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM oncegate_meta"
    " WHERE name = 'ledger_id' AND value = %s::text) AS same,"
    " CASE WHEN current_setting('synchronous_commit') = 'off'"
    " THEN set_config('synchronous_commit', 'on', true) END AS durable),"
)
_ENDED: Final = "SELECT same, EXISTS (SELECT 1 FROM ended), pg_current_xact_id()::text FROM here"


def _one(sql: str) -> str:
    """Takes each array apart: its only element becomes a parameter."""
    return re.sub(r"%s::(\w+)\[\]", r"ARRAY[%s::\1]", sql)


def _settle() -> str:
    sql = replaced(_one(statements.SETTLE), "WITH", _HERE)
    sql = replaced(sql, "target.state = 1", "target.state = 1 AND (SELECT same FROM here)")
    return replaced(sql, "SELECT place::int FROM ended", _ENDED)


def _end(statement: str) -> str:
    """An end for good: a third of the work of `SETTLE`, which can do every other too."""
    sql = replaced(statement, "WITH", _HERE)
    sql = replaced(sql, "state = 1\n", "state = 1 AND (SELECT same FROM here)\n")
    return replaced(sql, "SELECT 1 FROM ended", _ENDED)


def _reserve(statement: str) -> str:
    sql = replaced(_one(statement), "WITH", _HERE)
    sql = replaced(sql, f"WHERE {statements.IS_NEW} ORDER BY", "WHERE (SELECT same FROM here) ORDER BY")
    return replaced(
        sql,
        "SELECT place::int, number, now FROM wanted JOIN fresh ON id = number, clock",
        "SELECT same, (SELECT id FROM fresh), now FROM here, clock",
    )


SETTLE: Final = _settle()
END: Final = _end(statements.END_ONE)
END_FIRST: Final = _end(statements.END_FIRST)
END_BARE: Final = _end(statements.END_BARE)
RESERVE: Final = _reserve(statements.RESERVE)
RESERVE_MARKED: Final = _reserve(statements.RESERVE_MARKED)
KNOWN: Final = replaced(statements.KNOWN, statements.SOME_KEYS, "ANY(ARRAY[%s::bytea])")
CLEAR_STEPS: Final = replaced(statements.CLEAR_STEPS, "ANY(%s)", "ANY(ARRAY[%s::bigint])")
