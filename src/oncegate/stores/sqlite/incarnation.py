"""Which incarnation of a ledger a SQLite file is: the file, the ledger in it, and its newest number."""

from __future__ import annotations

import sqlite3

from oncegate.store.incarnations import Sight
from oncegate.stores.sqlite.files import identity_of
from oncegate.stores.sqlite.new_keys import next_number


def sight_of(connection: sqlite3.Connection, file: str) -> Sight:
    """What is seen over a connection that was just opened."""
    (ledger,) = connection.execute("SELECT value FROM oncegate_meta WHERE name = 'ledger_id'").fetchone()
    device, number = identity_of(file) or (0, 0)
    return Sight(f"{device}/{number}/{ledger}", next_number(connection) - 1)
