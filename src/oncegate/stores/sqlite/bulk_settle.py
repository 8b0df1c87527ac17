"""Plain settlements of a batch in three statements, however many they are.

A row that is bound and stepped by itself costs more in the binding than in the ledger. Where all of a
batch are first attempts that have committed, what differs between them fits in one number each, and
SQLite walks the numbers itself. Must never decide anything: the caller compares the count of changed
rows, and takes the batch row by row if one is missing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from msgspec import Struct

from oncegate.model.states import State
from oncegate.store import Settlement

SWEPT_MIN: Final = 4  # fewer are as quick one by one
IS_POSSIBLE: Final = sqlite3.sqlite_version_info >= (3, 38)  # JSON always there, and UPDATE ... FROM
SWEPT_MAX: Final = 1 << 12
_PLACE_BITS: Final = 12
_TIME_BITS: Final = 16  # times of one batch lie within a minute
_ENTRY_SHIFT: Final = _PLACE_BITS + _TIME_BITS
_ENTRY_MAX: Final = 1 << (62 - _ENTRY_SHIFT)
_LENGTH_BITS: Final = 28  # an outcome is shorter than 256 MB
_TIME_MASK: Final = (1 << _TIME_BITS) - 1
_PLACE_MASK: Final = SWEPT_MAX - 1
_LENGTH_MASK: Final = (1 << _LENGTH_BITS) - 1
_COMMITTED: Final = State.COMMITTED

# The claims are an object: its names are tokens; each number is an entry, a time and a place in the batch.
# A first claim's fence is its entry's own number, so that one number stands for both.
_ENTRY: Final = f"(item.value >> {_ENTRY_SHIFT})"
_PLACE: Final = f"(item.value & {_PLACE_MASK})"
_AT: Final = f"?2 + ((item.value >> {_PLACE_BITS}) & {_TIME_MASK})"
_SETTLE: Final = (
    f"UPDATE oncegate_entry AS entry SET record = ?1 + {_PLACE}, state = 2, settled_at = {_AT},"
    " reason = NULL, lease_until = NULL, first_reserved = NULL"
    " FROM json_each(?3) AS item"
    f" WHERE entry.id = {_ENTRY} AND entry.fence = entry.id"
    " AND entry.token = CAST(item.key AS INTEGER) AND entry.state = 1"
)
_LOG: Final = (
    "INSERT INTO oncegate_log (position, entry, kind, at, actor)"
    f" SELECT ?1 + {_PLACE}, {_ENTRY}, 2, {_AT}, ?4 FROM json_each(?3) AS item"
)
_OUTCOMES: Final = (
    "INSERT OR REPLACE INTO oncegate_outcome (entry, body)"
    f" SELECT log.entry, substr(?2, item.value >> {_LENGTH_BITS}, item.value & {_LENGTH_MASK})"
    " FROM json_each(?3) AS item JOIN oncegate_log AS log ON log.position = ?1 + item.key"
    " WHERE item.value > 0"
)


class Sweep(Struct, frozen=True):
    """A batch of settlements that differ in entry, time and outcome only."""

    settlements: Sequence[Settlement]
    first_ms: int
    claims: str

    def settle(self, connection: sqlite3.Connection, position: int) -> int:
        """Ends the claims whose fences are right; returns how many."""
        return connection.execute(_SETTLE, (position, self.first_ms, self.claims)).rowcount

    def log(self, connection: sqlite3.Connection, position: int, actor: int) -> None:
        """Writes their records, the first at the given position."""
        connection.execute(_LOG, (position, self.first_ms, self.claims, actor))

    def keep_outcomes(self, connection: sqlite3.Connection, position: int) -> None:
        """Keeps the outcomes of those that have one; which entry each belongs to stands in the log."""
        bodies = [item.outcome or b"" for item in self.settlements]
        lengths = list(map(len, bodies))
        *offsets, _ = accumulate(lengths, initial=1)
        places = [
            0 if item.outcome is None else offset << _LENGTH_BITS | length
            for item, offset, length in zip(self.settlements, offsets, lengths, strict=True)
        ]
        if any(places):
            connection.execute(_OUTCOMES, (position, b"".join(bodies), str(places)))


def sweep_of(settlements: Sequence[Settlement]) -> Sweep | None:
    """The batch as one sweep, or nothing if it has to be taken row by row."""
    if not (IS_POSSIBLE and SWEPT_MIN <= len(settlements) <= SWEPT_MAX):
        return None
    actor, first_ms = settlements[0].actor, min([item.at_ms for item in settlements])
    claims = [
        f'"{item.token}":{item.entry_id << _ENTRY_SHIFT | (item.at_ms - first_ms) << _PLACE_BITS | place}'
        for place, item in enumerate(settlements)
        if item.state is _COMMITTED
        and item.fence == item.entry_id < _ENTRY_MAX
        and item.at_ms - first_ms <= _TIME_MASK
        and item.actor == actor
        and item.reason is None
        and not item.attempts_given_back
    ]
    if len(claims) < len(settlements):
        return None
    return Sweep(settlements, first_ms, f"{{{','.join(claims)}}}")
