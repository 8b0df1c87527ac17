"""What users' statements leave on a connection of ours, taken away after their transaction.

A handler's SET, advisory lock or temporary table belongs to its own event; the next event on the connection
is another customer's. Used by the session, which sends `after` behind COMMIT or ROLLBACK in the same round
trip. `before` goes ahead of our own statements and of COMMIT: what is answered for must be durable, and in
the ledger that the connection was opened on, whatever the handler has set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import psycopg

from oncegate.errors import UsageError
from oncegate.model.sql_guard import first_word
from oncegate.stores.postgres.wire import WireCommand

# What `RESET ALL` leaves alone, and what it would set to the server's own values where a pooler left our
# options out. The role comes after the user whom it may be taken by.
SETTINGS: Final = (
    "synchronous_commit",
    "search_path",
    "statement_timeout",
    "enable_seqscan",
    "jit",
    "default_transaction_isolation",
    "session_authorization",
    "role",
)
_GUARDED: Final = 2  # so many of them matter to COMMIT and to our statements before it
_READ: Final = "SELECT " + ", ".join(f"current_setting('{name}')" for name in SETTINGS)
_RESET: Final = (WireCommand("RESET ALL"), WireCommand("DISCARD TEMP"))
_REFUSED: Final = re.compile(
    r"listen\b|prepare\b|deallocate\b|discard\b|declare\b(?=.*\bwith\s+hold\b)", re.IGNORECASE | re.DOTALL
)


class Tidying:
    """The statements that bring one connection back to the settings it was opened with."""

    def __init__(self, values: Sequence[str]) -> None:
        guarded, kept = _sets(SETTINGS[:_GUARDED], "true"), _sets(SETTINGS, "false")
        self.before = WireCommand(f"SELECT {guarded}", tuple(values[:_GUARDED]))
        self.after: tuple[WireCommand, ...] = (
            *_RESET,
            WireCommand(f"SELECT pg_advisory_unlock_all(), {kept}", tuple(values)),
        )


def tidying_of(connection: psycopg.Connection[tuple[Any, ...]]) -> Tidying:
    """Reads the settings of a connection that no user's statement has run on yet."""
    return Tidying(connection.execute(_READ.encode()).fetchone() or ())


def _sets(names: Sequence[str], is_local: str) -> str:
    return ", ".join(
        f"set_config('{name}', ${place}, {is_local})" for place, name in enumerate(names, start=1)
    )


@lru_cache(maxsize=1024)
def refuse_lasting(sql: str) -> None:
    """Raises UsageError for what only makes sense on a connection of the user's own."""
    found = _REFUSED.match(sql, first_word(sql, nested=True))
    if found is not None:
        raise UsageError(
            f"{found.group().upper()} outlasts the transaction, and the connection is the gate's; "
            "use a connection of your own"
        )
