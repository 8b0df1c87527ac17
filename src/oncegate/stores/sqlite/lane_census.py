"""Lists of lanes, deliveries and dead letters on the embedded ledger, and the pruning of deliveries."""

from __future__ import annotations

import sqlite3
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
from oncegate.stores.shared.lane_views import Destinations, lane_view, pruned_lanes
from oncegate.stores.sqlite.names import Names

_LANE: Final = (
    "SELECT lane.id, lane.destination, lane.tenant, lane.key, lane.state, lane.seq, lane.last_seq,"
    " lane.attempt, lane.error, lane.due_at, head.created_at, lane.replay FROM oncegate_lane AS lane{index}"
    " LEFT JOIN oncegate_delivery AS head ON head.lane = lane.id AND head.seq = lane.seq"
)
_OPEN: Final = " INDEXED BY oncegate_lane_open"
_NAME: Final = "SELECT id, destination, tenant, key FROM oncegate_lane WHERE id = ?"
_DELIVERIES: Final = (
    "SELECT past.lane, past.seq, past.event, past.type, past.created_at, ack.at,"
    " coalesce(ack.attempts, dead.attempts, 0), coalesce(dead.error, ack.note), dead.seq IS NOT NULL"
    " FROM oncegate_delivery AS past LEFT JOIN oncegate_ack AS ack ON ack.delivery = past.id"
    " LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq"
    " WHERE past.lane = ? AND past.seq >= ? ORDER BY past.seq LIMIT ?"
)
_DEAD_LETTERS: Final = (
    "SELECT dead.lane, dead.seq, lane.destination, lane.tenant, lane.key, past.event, past.type,"
    " past.created_at, dead.at, dead.attempts, dead.error, dead.seq = coalesce(lane.replay, lane.seq)"
    " FROM oncegate_dead_letter AS dead JOIN oncegate_lane AS lane ON lane.id = dead.lane"
    " JOIN oncegate_delivery AS past ON past.lane = dead.lane AND past.seq = dead.seq"
    " WHERE (dead.lane, dead.seq) > (?, ?){where} ORDER BY dead.lane, dead.seq LIMIT ?"
)
_LAGS: Final = (
    "SELECT lane.destination, sum(lane.state = 2), sum(lane.state = 3), sum(lane.state = 4),"
    " sum(lane.last_seq - lane.seq + 1), min(head.created_at), min(dead.at) FILTER (WHERE lane.state = 4)"
    " FROM oncegate_lane AS lane INDEXED BY oncegate_lane_open"
    " LEFT JOIN oncegate_delivery AS head ON head.lane = lane.id AND head.seq = lane.seq"
    " LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = lane.id AND dead.seq = lane.seq"
    " WHERE lane.state <> 1 GROUP BY lane.destination"
)
_STEERED: Final = "SELECT id, state, reason, since, not_before FROM oncegate_destination"
_DEAD_COUNTS: Final = (
    "SELECT lane.destination, count(*) FROM oncegate_dead_letter AS dead"
    " JOIN oncegate_lane AS lane ON lane.id = dead.lane GROUP BY lane.destination"
)
# From one destination to the next along the index: the work grows with destinations, not with lanes.
_NAMED: Final = (
    "WITH RECURSIVE named (number) AS (SELECT min(destination) FROM oncegate_lane UNION ALL"
    " SELECT (SELECT min(destination) FROM oncegate_lane WHERE destination > number) FROM named"
    " WHERE number IS NOT NULL) SELECT number FROM named WHERE number IS NOT NULL"
)
_WAITING_AT: Final = (
    "SELECT coalesce(sum(last_seq - seq + 1), 0) FROM oncegate_lane INDEXED BY oncegate_lane_open"
    " WHERE state <> 1 AND destination = ?"
)
_LANES_AFTER: Final = "SELECT id, destination FROM oncegate_lane WHERE id > ? ORDER BY id LIMIT ?"
_OLD: Final = (
    "SELECT past.id FROM oncegate_delivery AS past JOIN oncegate_ack AS ack ON ack.delivery = past.id"
    " JOIN oncegate_lane AS lane ON lane.id = past.lane"
    " WHERE past.lane = ?1 AND past.seq < lane.seq AND ack.at < ?2"
    " AND NOT EXISTS (SELECT 1 FROM oncegate_replay AS r WHERE r.lane = ?1 AND r.seq = past.seq)"
    " AND NOT EXISTS (SELECT 1 FROM oncegate_dead_letter AS d WHERE d.lane = ?1 AND d.seq = past.seq)"
    " ORDER BY past.seq LIMIT ?3"
)
_PAST: Final = "SELECT lane, seq FROM oncegate_delivery WHERE id = ?"
_REMOVE: Final = (
    f"DELETE FROM oncegate_attempt WHERE (lane, seq) IN ({_PAST})",
    "DELETE FROM oncegate_delivery WHERE id = ?",
    "DELETE FROM oncegate_ack WHERE delivery = ?",
)


class SqliteLaneCensus:
    """Lanes, deliveries, dead letters, destinations, pruning."""

    _connection: sqlite3.Connection
    _names: Names

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def find_lane(self, destination: str, tenant: str, key: str) -> LaneView | None:
        """Reads one lane."""
        found = self.lanes(LaneFilter(destination, tenant, key), 0, 1)
        return found[0] if found else None

    def lane_names(self, lane_ids: Sequence[int]) -> dict[int, LaneName]:
        """Reads lanes' names."""
        found = [self._connection.execute(_NAME, (number,)).fetchone() for number in set(lane_ids)]
        text = self._names.text
        return {row[0]: LaneName(text(row[1]), text(row[2]), row[3]) for row in found if row is not None}

    def lanes(self, wanted: LaneFilter, after_lane: int, limit: int) -> list[LaneView]:
        """Lists lanes."""
        conditions, parameters = self._lane_conditions(wanted)
        is_open = wanted.key is None and wanted.idle_upto is None
        index = _OPEN if is_open else ""
        if is_open:
            conditions.append("lane.state <> 1")
        where = " AND ".join(["lane.id > ?", *conditions])
        sql = f"{_LANE.format(index=index)} WHERE {where} ORDER BY lane.id LIMIT ?"
        rows = self._connection.execute(sql, (after_lane, *parameters, limit)).fetchall()
        now = self.now_ticks()
        return [lane_view(row, self._names.text, now) for row in rows]

    def _lane_conditions(self, wanted: LaneFilter) -> tuple[list[str], list[Any]]:
        conditions: list[str] = []
        parameters: list[Any] = []
        for column, name in (("destination", wanted.destination), ("tenant", wanted.tenant)):
            if name is not None:
                conditions.append(f"lane.{column} = ?")
                parameters.append(self._names.find(name) or -1)
        if wanted.key is not None:
            conditions.append("lane.key = ?")
            parameters.append(wanted.key)
        if wanted.key_contains:
            conditions.append("instr(lane.key, ?) > 0")
            parameters.append(wanted.key_contains)
        if wanted.idle_upto is not None:
            conditions.append("lane.id <= ?")
            parameters.append(wanted.idle_upto)
        if wanted.states:
            conditions.append(f"lane.state IN ({', '.join('?' * len(wanted.states))})")
            parameters += [state.value for state in wanted.states]
        return conditions, parameters

    def deliveries(self, lane_id: int, seq_from: int, limit: int) -> list[DeliveryView]:
        """Lists a lane's events."""
        rows = self._connection.execute(_DELIVERIES, (lane_id, seq_from, limit)).fetchall()
        return [
            DeliveryView(lane, seq, event, self._names.text(kind), created, at, attempts, note, bool(dead))
            for lane, seq, event, kind, created, at, attempts, note, dead in rows
        ]

    def dead_letters(self, wanted: LaneFilter, after: tuple[int, int], limit: int) -> list[DeadLetter]:
        """Lists dead letters."""
        conditions, parameters = self._lane_conditions(wanted)
        where = "".join(f" AND {condition}" for condition in conditions)
        sql = _DEAD_LETTERS.format(where=where)
        rows = self._connection.execute(sql, (*after, *parameters, limit)).fetchall()
        return [self._dead_letter(row) for row in rows]

    def _dead_letter(self, row: tuple[Any, ...]) -> DeadLetter:
        lane, seq, destination, tenant, key, event, kind, created, at, attempts, error, is_head = row
        text = self._names.text
        return DeadLetter(
            lane, seq, text(destination), text(tenant), key, event, text(kind), created, at, attempts,
            error, bool(is_head),
        )  # fmt: skip

    def destinations(self) -> list[DestinationView]:
        """Tells states and lags."""
        execute = self._connection.execute
        found = Destinations(execute(_LAGS), execute(_STEERED), execute(_DEAD_COUNTS))
        return found.views(found.numbers(execute(_NAMED)), self._names.text, self.now_ticks())

    def waiting_at(self, destination: str) -> int:
        """Counts what waits at a destination."""
        (waiting,) = self._connection.execute(_WAITING_AT, (self._names.find(destination),)).fetchone()
        return int(waiting)

    def prune_deliveries(self, wanted: LanePruning) -> LanePruned:
        """Removes old deliveries of the next lanes."""
        name = wanted.destination
        rows = self._connection.execute(_LANES_AFTER, (wanted.after_lane, wanted.limit)).fetchall()
        return pruned_lanes(
            wanted,
            rows,
            None if name is None else self._names.find(name),
            lambda lane, room: self._prune_lane(lane, wanted.before_ms, room),
        )

    def _prune_lane(self, lane: int, before_ms: int, room: int) -> int:
        old = self._connection.execute(_OLD, (lane, before_ms, room)).fetchall()
        for sql in _REMOVE:
            self._connection.executemany(sql, old)
        return len(old)
