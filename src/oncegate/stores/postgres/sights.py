"""Which incarnation of a ledger a PostgreSQL server shows.

A promoted standby has another timeline, a new cluster another identifier, a restored dump other tables; a
restored disk has a shorter log than this process has seen.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import errors as postgres

from oncegate.store.incarnations import Sight

POSITION_SLACK: Final = 256 * 2**20  # bytes of the log that are written while an answer is on its way
SIGHT: Final = """
SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
                 left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
                 (SELECT oid FROM pg_database WHERE datname = current_database()),
                 to_regclass('oncegate_entry')::oid,
                 (SELECT value FROM oncegate_meta WHERE name = 'ledger_id')),
       (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint
"""


def read_sight(connection: psycopg.Connection[tuple[Any, ...]]) -> Sight | None:
    """What is seen over a connection; None on a standby, and where the role may not look."""
    try:
        with connection.transaction():
            row = connection.execute(SIGHT).fetchone()
    except (postgres.InsufficientPrivilege, postgres.ObjectNotInPrerequisiteState):
        return None
    return None if row is None else Sight(*row)
