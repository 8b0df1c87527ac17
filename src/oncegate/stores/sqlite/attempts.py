"""The last failed attempts of deliveries on the embedded ledger. Mixed into the session."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from oncegate.store.attempts import ATTEMPTS_KEPT, Attempt

_NOTE: Final = (
    "INSERT OR REPLACE INTO oncegate_attempt (lane, seq, fence, at, took, status, error)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_MAKE_ROOM: Final = (
    "DELETE FROM oncegate_attempt WHERE lane = ?1 AND seq = ?2 AND fence <= (SELECT fence"
    " FROM oncegate_attempt WHERE lane = ?1 AND seq = ?2 ORDER BY fence DESC"
    f" LIMIT 1 OFFSET {ATTEMPTS_KEPT})"
)
_ATTEMPTS: Final = (
    "SELECT lane, seq, fence, at, took, status, error FROM oncegate_attempt"
    " WHERE lane = ? AND seq = ? ORDER BY fence"
)


class SqliteAttempts:
    """Note, list."""

    _connection: sqlite3.Connection

    def note_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Keeps the last of each delivery."""
        rows = [(a.lane_id, a.seq, a.fence, a.at_ms, a.took_ms, a.status, a.error) for a in attempts]
        self._connection.executemany(_NOTE, rows)
        self._connection.executemany(_MAKE_ROOM, [row[:2] for row in rows])

    def attempts(self, lane_id: int, seq: int) -> list[Attempt]:
        """Lists those of one delivery."""
        return [Attempt(*row) for row in self._connection.execute(_ATTEMPTS, (lane_id, seq)).fetchall()]
