"""Positions of lanes in a PostgreSQL ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.stores.postgres.statements import SOME_KEYS

_READ: Final = f"SELECT lane, seq FROM oncegate_position WHERE lane = {SOME_KEYS}"


class PostgresPositions:
    """Reads positions; they are moved as business writes."""

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def positions(self, lanes: Sequence[bytes]) -> list[int]:
        """The seq that each lane has come to."""
        found = {bytes(lane): seq for lane, seq in self._query(_READ, (list(lanes),))}
        return [found.get(lane, 0) for lane in lanes]
