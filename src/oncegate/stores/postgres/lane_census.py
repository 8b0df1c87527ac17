"""Lists of lanes, deliveries and dead letters on PostgreSQL, and the pruning of deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.store import (
    DeadLetter,
    DeliveryView,
    DestinationView,
    LaneFilter,
    LaneName,
    LanePruned,
    LanePruning,
    LaneView,
)
from oncegate.stores.postgres.names import Names
from oncegate.stores.shared.lane_views import Destinations, lane_view, pruned_lanes

_LANE: Final = """
SELECT lane.id, lane.destination, lane.tenant, lane.key, head.state, head.seq, lane.last_seq, head.attempt,
       head.error, head.due_at, body.created_at, head.replay
FROM oncegate_head AS head JOIN oncegate_lane AS lane ON lane.id = head.lane
LEFT JOIN oncegate_delivery AS body ON body.lane = head.lane AND body.seq = head.seq
"""
# OFFSET 0: begun from the heads that have something to do, which are few, never from all lanes.
_OPEN_LANE: Final = """
SELECT lane.id, lane.destination, lane.tenant, lane.key, head.state, head.seq, lane.last_seq, head.attempt,
       head.error, head.due_at, body.created_at, head.replay
FROM oncegate_head AS head CROSS JOIN LATERAL (SELECT * FROM oncegate_lane AS one WHERE one.id = head.lane \
OFFSET 0) AS lane
LEFT JOIN oncegate_delivery AS body ON body.lane = head.lane AND body.seq = head.seq
"""
_NAMES: Final = "SELECT id, destination, tenant, key FROM oncegate_lane WHERE id = ANY(%s::bigint[])"
_DELIVERIES: Final = """
SELECT past.lane, past.seq, past.event, past.type, past.created_at, ack.at,
       coalesce(ack.attempts, dead.attempts, 0), coalesce(dead.error, ack.note), dead.seq IS NOT NULL
FROM oncegate_delivery AS past
LEFT JOIN oncegate_ack AS ack ON ack.lane = past.lane AND ack.seq = past.seq
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq
WHERE past.lane = %s AND past.seq >= %s ORDER BY past.seq LIMIT %s
"""
_DEAD_LETTERS: Final = """
SELECT dead.lane, dead.seq, lane.destination, lane.tenant, lane.key, past.event, past.type, past.created_at,
       dead.at, dead.attempts, dead.error, dead.seq = coalesce(head.replay, head.seq)
FROM oncegate_dead_letter AS dead JOIN oncegate_lane AS lane ON lane.id = dead.lane
JOIN oncegate_head AS head ON head.lane = dead.lane
JOIN oncegate_delivery AS past ON past.lane = dead.lane AND past.seq = dead.seq
WHERE (dead.lane, dead.seq) > (%s, %s)
"""
_LAGS: Final = """
SELECT head.destination, count(*) FILTER (WHERE head.state = 2), count(*) FILTER (WHERE head.state = 3),
       count(*) FILTER (WHERE head.state = 4), sum(lane.last_seq - head.seq + 1)::bigint,
       min(body.created_at), min(dead.at) FILTER (WHERE head.state = 4)
FROM oncegate_head AS head CROSS JOIN LATERAL (SELECT * FROM oncegate_lane AS one WHERE one.id = head.lane \
OFFSET 0) AS lane
LEFT JOIN oncegate_delivery AS body ON body.lane = head.lane AND body.seq = head.seq
LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = head.lane AND dead.seq = head.seq
WHERE head.state <> 1 GROUP BY head.destination
"""
_STEERED: Final = "SELECT id, state, reason, since, not_before FROM oncegate_destination"
_DEAD_COUNTS: Final = """
SELECT lane.destination, count(*) FROM oncegate_dead_letter AS dead CROSS JOIN LATERAL
    (SELECT destination FROM oncegate_lane AS one WHERE one.id = dead.lane OFFSET 0) AS lane
GROUP BY lane.destination
"""
_NAMED: Final = """
SELECT id FROM oncegate_name AS name
WHERE EXISTS (SELECT 1 FROM oncegate_lane WHERE destination = name.id)
"""
_LANES_AFTER: Final = "SELECT id, destination FROM oncegate_lane WHERE id > %s ORDER BY id LIMIT %s"
_WAITING_AT: Final = """
SELECT coalesce(sum(lane.last_seq - head.seq + 1), 0)::bigint
FROM oncegate_head AS head CROSS JOIN LATERAL (SELECT * FROM oncegate_lane AS one WHERE one.id = head.lane \
OFFSET 0) AS lane
WHERE head.state <> 1 AND head.destination = %s
"""
_PRUNE: Final = """
WITH old AS MATERIALIZED (
    SELECT past.lane, past.seq FROM oncegate_delivery AS past
    JOIN oncegate_ack AS ack ON ack.lane = past.lane AND ack.seq = past.seq
    JOIN oncegate_head AS head ON head.lane = past.lane
    WHERE past.lane = %s AND past.seq < head.seq AND ack.at < %s
      AND NOT EXISTS (SELECT 1 FROM oncegate_replay AS again
                      WHERE again.lane = past.lane AND again.seq = past.seq)
      AND NOT EXISTS (SELECT 1 FROM oncegate_dead_letter AS dead
                      WHERE dead.lane = past.lane AND dead.seq = past.seq)
    ORDER BY past.seq LIMIT %s FOR UPDATE OF past SKIP LOCKED
),
forgotten AS (DELETE FROM oncegate_ack AS ack USING old WHERE ack.lane = old.lane AND ack.seq = old.seq),
tried AS (DELETE FROM oncegate_attempt AS a USING old WHERE a.lane = old.lane AND a.seq = old.seq)
DELETE FROM oncegate_delivery AS past USING old WHERE past.lane = old.lane AND past.seq = old.seq
RETURNING 1
"""


class PostgresLaneCensus:
    """Lanes, deliveries, dead letters, destinations, pruning."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def find_lane(self, destination: str, tenant: str, key: str) -> LaneView | None:
        """Reads one lane."""
        found = self.lanes(LaneFilter(destination, tenant, key), 0, 1)
        return found[0] if found else None

    def lane_names(self, lane_ids: Sequence[int]) -> dict[int, LaneName]:
        """Reads lanes' names."""
        rows = self._query(_NAMES, (list(lane_ids),)) if lane_ids else []
        texts = self._names.texts({number for row in rows for number in row[1:3]})
        return {lane: LaneName(texts[place], texts[tenant], key) for lane, place, tenant, key in rows}

    def lanes(self, wanted: LaneFilter, after_lane: int, limit: int) -> list[LaneView]:
        """Lists lanes."""
        conditions, parameters = self._lane_conditions(wanted)
        is_open = wanted.key is None and wanted.idle_upto is None
        if is_open:
            conditions.append("head.state <> 1")
        where = " AND ".join(["head.lane > %s", *conditions])
        sql = f"{_OPEN_LANE if is_open else _LANE} WHERE {where} ORDER BY head.lane LIMIT %s"
        rows = self._query(sql, (after_lane, *parameters, limit))
        texts, now = self._names.texts({number for row in rows for number in row[1:3]}), self.now_ticks()
        return [lane_view(row, texts.__getitem__, now) for row in rows]

    def _lane_conditions(self, wanted: LaneFilter) -> tuple[list[str], list[Any]]:
        conditions: list[str] = []
        parameters: list[Any] = []
        for column, name in (("destination", wanted.destination), ("tenant", wanted.tenant)):
            if name is not None:
                conditions.append(f"lane.{column} = %s")
                parameters.append(self._names.find(name) or -1)
        if wanted.key is not None:
            conditions.append("lane.key = %s")
            parameters.append(wanted.key)
        if wanted.key_contains:
            conditions.append("strpos(lane.key, %s) > 0")
            parameters.append(wanted.key_contains)
        if wanted.idle_upto is not None:
            conditions.append("head.lane <= %s")
            parameters.append(wanted.idle_upto)
        if wanted.states:
            conditions.append("head.state = ANY(%s)")
            parameters.append([state.value for state in wanted.states])
        return conditions, parameters

    def deliveries(self, lane_id: int, seq_from: int, limit: int) -> list[DeliveryView]:
        """Lists a lane's events."""
        rows = self._query(_DELIVERIES, (lane_id, seq_from, limit))
        texts = self._names.texts({row[3] for row in rows})
        return [
            DeliveryView(lane, seq, event, texts[kind], *rest) for lane, seq, event, kind, *rest in rows
        ]

    def dead_letters(self, wanted: LaneFilter, after: tuple[int, int], limit: int) -> list[DeadLetter]:
        """Lists dead letters."""
        conditions, parameters = self._lane_conditions(wanted)
        where = "".join(f" AND {condition}" for condition in conditions)
        sql = f"{_DEAD_LETTERS}{where} ORDER BY dead.lane, dead.seq LIMIT %s"
        rows = self._query(sql, (*after, *parameters, limit))
        texts = self._names.texts({number for row in rows for number in (row[2], row[3], row[6])})
        return [
            DeadLetter(
                lane, seq, texts[destination], texts[tenant], key, event, texts[kind], *rest
            )
            for lane, seq, destination, tenant, key, event, kind, *rest in rows
        ]  # fmt: skip

    def destinations(self) -> list[DestinationView]:
        """Tells states and lags."""
        found = Destinations(
            self._query(_LAGS, ()), self._query(_STEERED, ()), self._query(_DEAD_COUNTS, ())
        )
        numbers = found.numbers(self._query(_NAMED, ()))
        return found.views(numbers, self._names.texts(numbers).__getitem__, self.now_ticks())

    def waiting_at(self, destination: str) -> int:
        """Counts what waits at a destination."""
        ((waiting,),) = self._query(_WAITING_AT, (self._names.find(destination),))
        return int(waiting)

    def prune_deliveries(self, wanted: LanePruning) -> LanePruned:
        """Removes old deliveries of the next lanes."""
        self._begin()
        name = wanted.destination
        rows = self._query(_LANES_AFTER, (wanted.after_lane, wanted.limit))
        return pruned_lanes(
            wanted,
            rows,
            None if name is None else self._names.find(name),
            lambda lane, room: len(self._query(_PRUNE, (lane, wanted.before_ms, room))),
        )
