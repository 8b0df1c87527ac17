"""Positions of lanes in the embedded ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

_READ: Final = "SELECT seq FROM oncegate_position WHERE lane = ?"


class SqlitePositions:
    """Reads positions; they are moved as business writes."""

    _connection: sqlite3.Connection

    def positions(self, lanes: Sequence[bytes]) -> list[int]:
        """The seq that each lane has come to."""
        rows = [self._connection.execute(_READ, (lane,)).fetchone() for lane in lanes]
        return [0 if row is None else row[0] for row in rows]
