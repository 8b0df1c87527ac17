"""Which incarnation of a ledger a PostgreSQL server shows.

A promoted standby has another timeline, a new cluster another identifier, a restored dump other tables; a
restored disk has a shorter log than this process has seen. A role that may not call all of the functions
that show this sees less; `oncegate doctor` names the right, and the process logs what it goes by instead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import psycopg
from psycopg import errors as postgres

from oncegate.store import Finding
from oncegate.store.incarnations import Sight

POSITION_SLACK: Final = 256 * 2**20  # bytes of the log that are written while an answer is on its way
_LOG: Final = logging.getLogger("oncegate.restored")
_SHOWN: Final = """
SELECT concat_ws('/', {server},
                 (SELECT oid FROM pg_database WHERE datname = current_database()),
                 to_regclass('oncegate_entry')::oid,
                 (SELECT value FROM oncegate_meta WHERE name = 'ledger_id')),
       {position}::bigint
"""
_SYSTEM: Final = "(SELECT system_identifier FROM pg_control_system())"
_TIMELINE: Final = "left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"
_POSITION: Final = "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)"
SIGHT: Final = _SHOWN.format(server=f"{_SYSTEM}, {_TIMELINE}", position=_POSITION)
# With fewer rights. How an identity begins says which statement shows it.
_WITHOUT_SYSTEM: Final = _SHOWN.format(server=f"'?', {_TIMELINE}", position=_POSITION)
_WITHOUT_LOG: Final = _SHOWN.format(server="'??'", position="0")
_SYSTEM_RIGHTS: Final = ("pg_control_system()",)
_LOG_RIGHTS: Final = ("pg_walfile_name(pg_lsn)", "pg_current_wal_insert_lsn()")
_LACKING: Final = """
SELECT name, quote_ident(current_user) FROM unnest(%s::text[]) AS needed (name)
WHERE NOT has_function_privilege(name, 'EXECUTE')
"""
_LESS: Final = {
    _WITHOUT_SYSTEM: "another timeline, other tables and a shorter log are noticed; another server with the"
    " same timeline is not",
    _WITHOUT_LOG: "other tables are noticed, and missing events among the last settled ones at every new"
    " connection; another timeline and a shorter log are not",
}

Connection = psycopg.Connection[tuple[Any, ...]]


def statement_for(identity: str) -> str:
    """The statement that has shown an identity."""
    if not identity.startswith("?"):
        return SIGHT
    return _WITHOUT_LOG if identity.startswith("??") else _WITHOUT_SYSTEM


def read_sight(connection: Connection, before: str | None = None) -> Sight | None:
    """What is seen over a connection; None on a standby, and where the role may not read the ledger.

    Logs what is gone by where the role lacks a right, unless what was seen `before` was seen in that way.
    """
    try:
        return _seen(connection, SIGHT)
    except postgres.ObjectNotInPrerequisiteState:
        return None
    except postgres.InsufficientPrivilege:
        lacking, role = _lacking(connection)
    sql = _possible(lacking)
    try:
        sight = _seen(connection, sql)
    except (postgres.InsufficientPrivilege, postgres.ObjectNotInPrerequisiteState):
        return None
    if before is None or statement_for(before) != sql:
        _LOG.warning("a failover may go unnoticed: %s. Mend it: %s", _LESS[sql], _grant(lacking, role))
    return sight


def _seen(connection: Connection, sql: str) -> Sight | None:
    with connection.transaction():
        row = connection.execute(sql.encode()).fetchone()
    return None if row is None else Sight(*row)


def examine_sight(connection: Connection) -> Iterator[Finding]:
    """Names the rights that the role lacks, and what a process goes by without them."""
    lacking, role = _lacking(connection)
    if lacking:
        yield Finding(True, "incarnation", _LESS[_possible(lacking)], _grant(lacking, role))


def may_see_system(connection: Connection) -> bool:
    """Whether the role may ask which server this is."""
    return not set(_lacking(connection)[0]).intersection(_SYSTEM_RIGHTS)


def _lacking(connection: Connection) -> tuple[list[str], str]:
    """The functions that the role may not call, and its name."""
    rows = connection.execute(_LACKING, ([*_SYSTEM_RIGHTS, *_LOG_RIGHTS],)).fetchall()
    return [name for name, _ in rows], rows[0][1] if rows else ""


def _possible(lacking: list[str]) -> str:
    if set(lacking).intersection(_LOG_RIGHTS):
        return _WITHOUT_LOG
    return _WITHOUT_SYSTEM if lacking else SIGHT


def _grant(lacking: list[str], role: str) -> str:
    return f"GRANT EXECUTE ON FUNCTION {', '.join(lacking)} TO {role}"
