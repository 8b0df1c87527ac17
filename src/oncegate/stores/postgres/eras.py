"""Transaction numbers of other servers: where a dump was restored, the log and the marks have some.

The log and the marks of content are read in the order of the transactions that wrote them, up to the oldest
one that still runs. On a server with lower numbers, rows from a restored dump would seem to lie in the
future, and new rows before them. So each move to such a server ends an era: the last entry and the last
record of it are kept in `oncegate_meta`, and rows are read era by era. All of an ended era is committed;
only the last one is bounded by what still runs. Used when the store connects, and by readers.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as postgres

POSITION_BITS: Final = 64  # a position is (era, transaction, number) in one integer
_LAST: Final = 2**63 - 1
READ: Final = "SELECT value FROM oncegate_meta WHERE name = 'eras'"
SERVER: Final = "SELECT system_identifier::text FROM pg_control_system()"
_LOCK: Final = "SELECT pg_advisory_xact_lock(7229, 2)"  # 1 is for migrations
_IS_AHEAD: Final = """
SELECT coalesce(greatest(
    (SELECT xact FROM oncegate_log ORDER BY xact DESC LIMIT 1),
    (SELECT xact FROM oncegate_content ORDER BY xact DESC LIMIT 1)
) >= pg_snapshot_xmax(pg_current_snapshot()), false)
"""
_ENDS: Final = """
SELECT (SELECT coalesce(max(entry), 0) FROM oncegate_content),
       (SELECT coalesce(max(position), 0) FROM oncegate_log)
"""
_WRITE: Final = """
INSERT INTO oncegate_meta (name, value) VALUES ('eras', %s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""

Connection = psycopg.Connection[tuple[Any, ...]]


class Eras(NamedTuple):
    """The server that the ledger was last seen on, and where each ended era stops."""

    server: str = ""
    entries: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        """The era that is written to."""
        return len(self.entries)

    def marks(self, era: int) -> tuple[int, int]:
        """The entries of an era's marks: above the first number, up to the second."""
        return _within(self.entries, era)

    def records(self, era: int) -> tuple[int, int]:
        """The numbers of an era's records in the log: above the first, up to the second."""
        return _within(self.positions, era)

    def era_of_mark(self, entry: int) -> int:
        """The era that an entry's mark was written in."""
        return bisect_left(self.entries, entry)

    def era_of(self, position: int) -> int:
        """The era that a record of the log was written in."""
        return bisect_left(self.positions, position)


def _within(ends: tuple[int, ...], era: int) -> tuple[int, int]:
    return (ends[era - 1] if era else 0), (ends[era] if era < len(ends) else _LAST)


def eras_of(rows: list[tuple[Any, ...]]) -> Eras:
    """Understands what is kept of eras; a ledger that never moved has nothing."""
    if not rows:
        return Eras()
    server, entries, positions = json.loads(rows[0][0])
    return Eras(server, tuple(entries), tuple(positions))


def joined(era: int, transaction: Any, number: int) -> int:
    """One integer that grows with the order of reading."""
    return (era << 2 * POSITION_BITS) | (int(transaction) << POSITION_BITS) | number


def parted(position: int) -> tuple[int, str, int]:
    """The era, the transaction as text, and the number of a position."""
    low = 2**POSITION_BITS - 1
    era, rest = position >> 2 * POSITION_BITS, position & (2 ** (2 * POSITION_BITS) - 1)
    return era, str(rest >> POSITION_BITS), min(rest & low, _LAST)


def note_server(connection: Connection) -> None:
    """Ends an era if the ledger has come to a server with lower transaction numbers.

    Called before anything is written over a new connection. A role that may not write this down leaves it
    to others; `oncegate doctor` says so.
    """
    try:
        (server,) = connection.execute(SERVER).fetchone() or ("",)
        if not is_due(connection, server):
            return
        with connection.transaction():
            connection.execute(_LOCK)
            if is_due(connection, server):
                _note(connection, server)
    except (postgres.InsufficientPrivilege, postgres.ReadOnlySqlTransaction):
        return


def _note(connection: Connection, server: str) -> None:
    eras = _read(connection)
    entries, positions = eras.entries, eras.positions
    if is_ahead(connection):
        entry, position = connection.execute(_ENDS).fetchone() or (0, 0)
        entries, positions = (*entries, entry), (*positions, position)
    connection.execute(_WRITE, (json.dumps([server, entries, positions]),))


def is_due(connection: Connection, server: str) -> bool:
    """Whether the ledger is on another server than before; its numbers tell where that was not kept."""
    eras = _read(connection)
    return eras.server != server or (not eras.last and is_ahead(connection))


def is_ahead(connection: Connection) -> bool:
    """Whether rows have transaction numbers that this server has not come to."""
    (ahead,) = connection.execute(_IS_AHEAD).fetchone() or (False,)
    return bool(ahead)


def _read(connection: Connection) -> Eras:
    return eras_of(connection.execute(READ).fetchall())
