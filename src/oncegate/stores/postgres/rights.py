"""Whether this role may write the ledger: a rehearsal, and the GRANT that is missing if it may not."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import errors as postgres

from oncegate.errors import StoreBusy, StoreError
from oncegate.store import Finding
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.failures import first_line
from oncegate.stores.postgres.session import PostgresSession
from oncegate.stores.postgres.timing import examine_speed
from oncegate.stores.shared.rehearsal import BUSY, POSSIBLE, WHAT, rehearse

# Somebody's lock on a whole table, such as a migration's, is nothing to wait for.
_PATIENCE: Final = "SELECT set_config('lock_timeout', '2s', true)"
_READ_ONLY: Final = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"
# What gates and workers do with each table; a claim takes them all.
_NEEDED: Final = {
    "oncegate_entry": "SELECT INSERT UPDATE DELETE",
    "oncegate_open": "SELECT INSERT UPDATE DELETE",
    "oncegate_payload": "SELECT INSERT DELETE",
    "oncegate_outcome": "SELECT INSERT UPDATE DELETE",
    "oncegate_step": "SELECT INSERT UPDATE DELETE",
    "oncegate_log": "SELECT INSERT",
    "oncegate_name": "SELECT INSERT UPDATE DELETE",
    "oncegate_meta": "SELECT",
    "oncegate_ticks": "SELECT UPDATE",
}
_LACKING: Final = """
SELECT privilege, string_agg(name, ', ' ORDER BY name), quote_ident(current_user)
FROM unnest(%s::text[], %s::text[]) AS needed (name, privilege)
WHERE NOT has_table_privilege(name, privilege) GROUP BY privilege ORDER BY privilege
"""
_LACKING_SEQUENCE: Final = """
SELECT 'USAGE', 'SEQUENCE oncegate_number', quote_ident(current_user)
WHERE NOT has_sequence_privilege('oncegate_number', 'USAGE')
"""

Connection = psycopg.Connection[tuple[Any, ...]]


def examine_writing(connection: Connection, session: PostgresSession, now_ms: int) -> list[Finding]:
    """Rehearses a claim over the session, which has this connection, and times it where it is possible."""
    finding = _examine_claim(connection, session, now_ms)
    if finding is not POSSIBLE:
        return [finding]
    try:
        return [
            finding,
            examine_speed(connection, lambda: rehearse(session, now_ms, lambda: _begin(session))),
        ]
    except StoreBusy:
        return [finding]


def _examine_claim(connection: Connection, session: PostgresSession, now_ms: int) -> Finding:
    """Not where writing is impossible."""
    standby, read_only = connection.execute(_READ_ONLY).fetchone() or (False, False)
    if standby or read_only:
        why = "this server is a standby" if standby else "default_transaction_read_only is on"
        return Finding(True, WHAT, f"not tried: {why}", "events are taken by the primary; name it instead")
    try:
        rehearse(session, now_ms, lambda: _begin(session))
    except StoreBusy:
        return BUSY
    except StoreError as error:
        return _refused(connection, error)
    return POSSIBLE


def _begin(session: PostgresSession) -> None:
    session._query(_PATIENCE, ())
    session._query(statements.KEEP_TIME, ())


def _refused(connection: Connection, error: StoreError) -> Finding:
    """The server's own words; of a right that is missing, what grants it."""
    cause = error.__cause__
    if not isinstance(cause, postgres.InsufficientPrivilege):
        return Finding(False, WHAT, "not possible", str(error))
    grants = _missing_grants(connection)
    step = "; ".join(grants) or "grant the user rights on the oncegate tables and its schema"
    return Finding(False, WHAT, f"not possible: {first_line(cause)}", step)


def _missing_grants(connection: Connection) -> list[str]:
    needed = [(table, right) for table, rights in _NEEDED.items() for right in rights.split()]
    tables, rights = [table for table, _ in needed], [right for _, right in needed]
    rows = connection.execute(_LACKING, (tables, rights)).fetchall()
    rows += connection.execute(_LACKING_SEQUENCE).fetchall()
    return [f"GRANT {right} ON {places} TO {role}" for right, places, role in rows]
