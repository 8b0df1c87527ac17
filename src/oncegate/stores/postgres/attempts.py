"""The last failed attempts of deliveries on PostgreSQL. Mixed into the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.store.attempts import ATTEMPTS_KEPT, Attempt
from oncegate.stores.postgres.arrays import bigint_array
from oncegate.stores.postgres.lanes import plain

_NOTE: Final = """
INSERT INTO oncegate_attempt (lane, seq, fence, at, took, status, error) VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (lane, seq, fence) DO NOTHING
"""
_MAKE_ROOM: Final = f"""
DELETE FROM oncegate_attempt AS old USING unnest(%s::bigint[], %s::bigint[]) AS noted (lane, seq)
WHERE old.lane = noted.lane AND old.seq = noted.seq AND old.fence <= (
    SELECT fence FROM oncegate_attempt AS kept WHERE kept.lane = noted.lane AND kept.seq = noted.seq
    ORDER BY fence DESC LIMIT 1 OFFSET {ATTEMPTS_KEPT})
"""
_ATTEMPTS: Final = """
SELECT lane, seq, fence, at, took, status, error FROM oncegate_attempt
WHERE lane = %s AND seq = %s ORDER BY fence
"""


class PostgresAttempts:
    """Note, list."""

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def note_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Keeps the last of each delivery; all lock in the order of lanes."""
        self._begin()
        for one in sorted(attempts, key=lambda one: (one.lane_id, one.seq, one.fence)):
            error = plain(one.error)
            row = (one.lane_id, one.seq, one.fence, one.at_ms, one.took_ms, one.status, error)
            self._query(_NOTE, row)
        places = sorted({(one.lane_id, one.seq) for one in attempts})
        lanes, seqs = (bigint_array([place[part] for place in places]) for part in (0, 1))
        self._query(_MAKE_ROOM, (lanes, seqs))

    def attempts(self, lane_id: int, seq: int) -> list[Attempt]:
        """Lists those of one delivery."""
        return [Attempt(*row) for row in self._query(_ATTEMPTS, (lane_id, seq))]
