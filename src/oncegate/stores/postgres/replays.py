"""Replays as they were asked for, on PostgreSQL. Mixed into the session below the lanes' desk.

Planting and cancelling lock the replay's order first, then lanes: a cancelled one is planted no further.
"""

from __future__ import annotations

from typing import Any, Final

from oncegate.store import LaneName, ReplayFilter, ReplayOrder, ReplayWanted
from oncegate.store.replays import LEFT_COUNTED_MAX, RUNNING_MAX
from oncegate.stores.postgres.attempts import PostgresAttempts
from oncegate.stores.postgres.lanes import PostgresLanes, plain
from oncegate.stores.shared.replay_filters import order_conditions

_KEEP: Final = """
INSERT INTO oncegate_replay_order (nonce, destination, tenant, lane, seq_from, seq_to, only_dead, at, actor,
                                   reason, deliveries, lanes, since, until, type)
VALUES (%s, %s, (SELECT tenant FROM oncegate_lane WHERE id = %s::bigint), %s::bigint, %s, %s::bigint, %s,
        %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (nonce) DO UPDATE SET deliveries = oncegate_replay_order.deliveries + excluded.deliveries,
                                  lanes = oncegate_replay_order.lanes + excluded.lanes
RETURNING id
"""
_MAKE_ROOM: Final = """
DELETE FROM oncegate_replay_order AS replayed WHERE id <= %s
AND NOT EXISTS (SELECT 1 FROM oncegate_replay AS again WHERE again.nonce = replayed.nonce)
"""
_HOLD: Final = "SELECT cancelled_at IS NOT NULL FROM oncegate_replay_order WHERE nonce = %s FOR UPDATE"
_CANCEL: Final = """
UPDATE oncegate_replay_order SET cancelled_at = %s, cancelled_by = %s, cancelled_why = %s,
       taken_back = taken_back + %s WHERE nonce = %s
"""
# From one nonce to the next along the index: the work grows with replays, not with their deliveries.
_RUNNING: Final = """
WITH RECURSIVE under_way (nonce) AS (
    (SELECT nonce FROM oncegate_replay ORDER BY nonce LIMIT 1) UNION ALL
    SELECT (SELECT again.nonce FROM oncegate_replay AS again WHERE again.nonce > under_way.nonce
            ORDER BY again.nonce LIMIT 1) FROM under_way WHERE under_way.nonce IS NOT NULL)
"""
_ORDERS: Final = f"""
SELECT id, nonce, destination, tenant, (SELECT key FROM oncegate_lane WHERE id = listed.lane),
       seq_from, seq_to, only_dead, at, actor, reason, deliveries, lanes,
       (SELECT count(*) FROM (SELECT 1 FROM oncegate_replay AS again WHERE again.nonce = listed.nonce
                              LIMIT {LEFT_COUNTED_MAX + 1}) AS few),
       taken_back, cancelled_at, cancelled_by, cancelled_why, since, until, type
FROM (SELECT * FROM oncegate_replay_order AS replayed WHERE {{where}} ORDER BY id DESC LIMIT %s) AS listed
ORDER BY id DESC
"""
_NOW: Final = (
    "replayed.cancelled_at IS NULL AND replayed.nonce = ANY"
    f" (ARRAY (SELECT nonce FROM under_way WHERE nonce IS NOT NULL LIMIT {RUNNING_MAX}))"
)
_LAST: Final = 2**63 - 1


class PostgresReplays(PostgresAttempts, PostgresLanes):
    """Keep, cancel, list."""

    def _keep_order(self, wanted: ReplayWanted, deliveries: int, lanes: int) -> None:
        destination = self._names.learn({wanted.destination})[wanted.destination]
        kept = (
            wanted.nonce, destination, wanted.lane_id, wanted.lane_id, wanted.seq_from, wanted.seq_to,
            wanted.only_dead, wanted.at_ms, plain(wanted.actor), plain(wanted.reason), deliveries, lanes,
            wanted.since_ms, wanted.until_ms, wanted.type and plain(wanted.type),
        )  # fmt: skip
        ((number,),) = self._query(_KEEP, kept)
        self._query(_MAKE_ROOM, (number - wanted.kept_max,))

    def _is_cancelled(self, nonce: int) -> bool:
        """Whether it was cancelled. Until the unit ends no other can cancel it or plant under its nonce."""
        rows = self._query(_HOLD, (nonce,))
        return bool(rows) and bool(rows[0][0])

    def _cancel_order(self, nonce: int, taken_back: int, actor: str, reason: str, at_ms: int) -> None:
        self._query(_CANCEL, (at_ms, plain(actor), plain(reason), taken_back, nonce))

    def replay_orders(self, wanted: ReplayFilter, before: int | None, limit: int) -> list[ReplayOrder]:
        """Lists replays."""
        conditions, parameters = order_conditions(wanted, self._names.find, "%s", _NOW)
        where = " AND ".join(["replayed.id < %s::bigint", *conditions])
        sql = (_RUNNING if wanted.only_running else "") + _ORDERS.format(where=where)
        rows = self._query(sql, (_LAST if before is None else before, *parameters, limit))
        numbers = {number for row in rows for number in row[2:4] if number is not None}
        texts = self._names.texts(numbers)
        return [_order(row, texts) for row in rows]


def _order(row: tuple[Any, ...], texts: dict[int, str]) -> ReplayOrder:
    number, nonce, destination, tenant, key, *rest = row
    place = texts[destination]
    lane = None if key is None else LaneName(place, texts[tenant], key)
    return ReplayOrder(number, nonce, place, lane, *rest)
