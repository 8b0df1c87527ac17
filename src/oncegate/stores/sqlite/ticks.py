"""The embedded ledger's own time: ticks since boot, carried on where the last boot stopped.

Ticks of one boot are shared by all processes of the machine and follow no wall clock. After a restart of
the machine they begin again, so the ledger keeps an offset for each boot. Time in which the machine was
off does not count: leases of the dead look just expired, and nothing is believed sooner than it should be.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from oncegate.clock import Clock
from oncegate.stores.sqlite.files import stored_number
from oncegate.stores.sqlite.open_entries import open_entries

_READ: Final = "SELECT name, value FROM oncegate_meta WHERE name IN ('boot', 'ticks_offset')"
_WRITE: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
# Of lanes that wait for a next try only what was is taken: a try that is due tomorrow is not today.
_LATEST: Final = (
    "SELECT max((SELECT coalesce(max(max(coalesce(lease_until, 0), coalesce(first_reserved, 0))), 0)"
    f" FROM ({open_entries('lease_until, first_reserved')})),"
    " (SELECT coalesce(max(CASE state WHEN 3 THEN due_at ELSE touched_at END), 0) FROM oncegate_lane))"
)
_UNNAMED_BOOT_SLACK_MS: Final = 3600 * 1000  # no lease reaches further ahead (model/surface.py)


def anchor_ticks(connection: sqlite3.Connection, clock: Clock) -> int:
    """Returns the offset of this boot, writing it if this is the boot's first session."""
    known = dict(connection.execute(_READ).fetchall())
    if _is_current(known, clock, connection):
        return stored_number("ticks_offset", known["ticks_offset"])
    connection.execute("BEGIN IMMEDIATE")
    try:
        offset = _anchor_under_lock(connection, clock)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return offset


def read_anchor(connection: sqlite3.Connection, clock: Clock) -> int:
    """Returns the offset without writing: what it is, or would be after a restart of the machine."""
    known = dict(connection.execute(_READ).fetchall())
    if _is_current(known, clock, connection):
        return stored_number("ticks_offset", known["ticks_offset"])
    return _latest(connection) - clock.ticks_ms()


def _anchor_under_lock(connection: sqlite3.Connection, clock: Clock) -> int:
    known = dict(connection.execute(_READ).fetchall())
    if _is_current(known, clock, connection):
        return stored_number("ticks_offset", known["ticks_offset"])
    offset = _latest(connection) - clock.ticks_ms()
    connection.execute(_WRITE, ("boot", clock.boot_id()))
    connection.execute(_WRITE, ("ticks_offset", offset))
    return offset


def _is_current(known: dict[str, object], clock: Clock, connection: sqlite3.Connection) -> bool:
    if "ticks_offset" not in known or known.get("boot") != clock.boot_id():
        return False
    if clock.boot_id():
        return True
    now = clock.ticks_ms() + stored_number("ticks_offset", known["ticks_offset"])
    return now >= _latest(connection) - _UNNAMED_BOOT_SLACK_MS


def _latest(connection: sqlite3.Connection) -> int:
    (latest,) = connection.execute(_LATEST).fetchone()
    return int(latest)
