"""Replays as they were asked for, on the embedded ledger. Mixed into the session below the lanes' desk."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from oncegate.store import LaneName, ReplayFilter, ReplayOrder, ReplayWanted
from oncegate.store.replays import LEFT_COUNTED_MAX, RUNNING_MAX
from oncegate.stores.shared.replay_filters import order_conditions
from oncegate.stores.sqlite.attempts import SqliteAttempts
from oncegate.stores.sqlite.names import Names

_KEEP: Final = (
    "INSERT INTO oncegate_replay_order (nonce, destination, tenant, lane, seq_from, seq_to, only_dead, at,"
    " actor, reason, deliveries, lanes, since, until, type)"
    " VALUES (?1, ?2, (SELECT tenant FROM oncegate_lane WHERE id = ?3), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
    " ?11, ?12, ?13, ?14)"
    " ON CONFLICT (nonce) DO UPDATE SET deliveries = deliveries + excluded.deliveries,"
    " lanes = lanes + excluded.lanes RETURNING id"
)
_MAKE_ROOM: Final = (
    "DELETE FROM oncegate_replay_order WHERE id <= ? AND NOT EXISTS"
    " (SELECT 1 FROM oncegate_replay AS again WHERE again.nonce = oncegate_replay_order.nonce)"
)
_IS_CANCELLED: Final = "SELECT cancelled_at IS NOT NULL FROM oncegate_replay_order WHERE nonce = ?"
_CANCEL: Final = (
    "UPDATE oncegate_replay_order SET cancelled_at = ?, cancelled_by = ?, cancelled_why = ?,"
    " taken_back = taken_back + ? WHERE nonce = ?"
)
# From one nonce to the next along the index: the work grows with replays, not with their deliveries.
_RUNNING: Final = (
    "WITH RECURSIVE under_way (nonce) AS (SELECT min(nonce) FROM oncegate_replay UNION ALL"
    " SELECT (SELECT min(nonce) FROM oncegate_replay WHERE nonce > under_way.nonce) FROM under_way"
    f" WHERE under_way.nonce IS NOT NULL LIMIT {RUNNING_MAX}) "
)
_ORDERS: Final = (
    "SELECT id, nonce, destination, tenant, (SELECT key FROM oncegate_lane WHERE id = listed.lane),"
    " seq_from, seq_to, only_dead, at, actor, reason, deliveries, lanes,"
    " (SELECT count(*) FROM (SELECT 1 FROM oncegate_replay AS again WHERE again.nonce = listed.nonce"
    f" LIMIT {LEFT_COUNTED_MAX + 1})), taken_back, cancelled_at, cancelled_by, cancelled_why,"
    " since, until, type FROM (SELECT * FROM oncegate_replay_order AS replayed WHERE {where}"
    " ORDER BY {id} DESC LIMIT ?) AS listed ORDER BY id DESC"
)
# Begun from the replays under way, which are few; the plus keeps it from walking through all by number.
_NUMBER: Final = "replayed.id"
_NUMBER_UNDER_WAY: Final = "+replayed.id"
_NOW: Final = "replayed.cancelled_at IS NULL AND replayed.nonce IN (SELECT nonce FROM under_way)"
_LAST: Final = 2**63 - 1


class SqliteReplays(SqliteAttempts):
    """Keep, cancel, list."""

    _connection: sqlite3.Connection
    _names: Names

    def _keep_order(self, wanted: ReplayWanted, deliveries: int, lanes: int) -> None:
        destination = self._names.number(wanted.destination)
        kept = (
            wanted.nonce, destination, wanted.lane_id, wanted.seq_from, wanted.seq_to, wanted.only_dead,
            wanted.at_ms, wanted.actor, wanted.reason, deliveries, lanes,
            wanted.since_ms, wanted.until_ms, wanted.type,
        )  # fmt: skip
        ((number,),) = self._connection.execute(_KEEP, kept).fetchall()
        self._connection.execute(_MAKE_ROOM, (number - wanted.kept_max,))

    def _is_cancelled(self, nonce: int) -> bool:
        row = self._connection.execute(_IS_CANCELLED, (nonce,)).fetchone()
        return row is not None and bool(row[0])

    def _cancel_order(self, nonce: int, taken_back: int, actor: str, reason: str, at_ms: int) -> None:
        self._connection.execute(_CANCEL, (at_ms, actor, reason, taken_back, nonce))

    def replay_orders(self, wanted: ReplayFilter, before: int | None, limit: int) -> list[ReplayOrder]:
        """Lists replays."""
        conditions, parameters = order_conditions(wanted, self._names.find, "?", _NOW)
        number = _NUMBER_UNDER_WAY if wanted.only_running else _NUMBER
        where = " AND ".join([f"{number} < ?", *conditions])
        sql = (_RUNNING if wanted.only_running else "") + _ORDERS.format(where=where, id=number)
        first = _LAST if before is None else before
        rows = self._connection.execute(sql, (first, *parameters, limit)).fetchall()
        return [self._order(row) for row in rows]

    def _order(self, row: tuple[Any, ...]) -> ReplayOrder:
        number, nonce, destination, tenant, key, seq_from, seq_to, only_dead, *rest = row
        place = self._names.text(destination)
        lane = None if key is None else LaneName(place, self._names.text(tenant), key)
        return ReplayOrder(number, nonce, place, lane, seq_from, seq_to, bool(only_dead), *rest)
