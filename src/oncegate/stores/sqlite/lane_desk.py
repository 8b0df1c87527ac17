"""Operators' verbs for lanes on the embedded ledger. Mixed into the session, on top of what workers do."""

from __future__ import annotations

from typing import Any, Final

from oncegate.store import (
    Acknowledgement,
    DestinationState,
    HeadAnswer,
    HeadOrder,
    LaneState,
    LogKind,
    Replaying,
    ReplayWanted,
    Steering,
)
from oncegate.stores.shared.lane_notes import (
    STEERED,
    cancel_note,
    order_note,
    replay_note,
    replay_sample,
    skipped_error,
    steering_note,
)
from oncegate.stores.sqlite.lanes import SqliteLanes
from oncegate.stores.sqlite.replays import SqliteReplays

_STATE_OF: Final = "SELECT state, not_before FROM oncegate_destination WHERE id = ?"
_STEER: Final = (
    "INSERT INTO oncegate_destination (id, state, since, reason) VALUES (?1, ?2, ?3, ?4)"
    " ON CONFLICT (id) DO UPDATE SET state = ?2, since = ?3, reason = ?4,"
    " not_before = CASE ?2 WHEN 1 THEN 0 ELSE not_before END"
)
_HEAD: Final = (
    "SELECT destination, tenant, key, seq, replay, attempt, due_at, last_seq, state, fence"
    " FROM oncegate_lane WHERE id = ?"
)
_RETRY: Final = (
    "UPDATE oncegate_lane SET state = 2, due_at = ?1, attempt = 0, touched_at = ?1 WHERE id = ?2"
)
_NOT_DEAD: Final = "DELETE FROM oncegate_dead_letter WHERE lane = ? AND seq = ?"
_SKIPPED: Final = (
    "INSERT OR IGNORE INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
_DROP_REPLAY: Final = "DELETE FROM oncegate_replay WHERE lane = ? AND seq = ?"
_LANES_AFTER: Final = (
    "SELECT id, destination, seq, replay, state FROM oncegate_lane WHERE id > ? ORDER BY id LIMIT ?"
)
_ONE_LANE: Final = "SELECT id, destination, seq, replay, state FROM oncegate_lane WHERE id = ?"
_IN_REPLAY: Final = "SELECT 1 FROM oncegate_replay WHERE lane = ? LIMIT 1"
_PAST: Final = (
    "SELECT seq FROM oncegate_delivery AS past WHERE lane = ?1 AND seq BETWEEN ?2 AND ?3"
    " AND (NOT ?4 OR EXISTS (SELECT 1 FROM oncegate_dead_letter WHERE lane = ?1 AND seq = past.seq))"
    " AND (?6 IS NULL OR created_at >= ?6) AND (?7 IS NULL OR created_at < ?7)"
    " AND (?8 IS NULL OR type = ?8) ORDER BY seq LIMIT ?5"
)
_REPLAY: Final = "INSERT INTO oncegate_replay (lane, seq, nonce) VALUES (?, ?, ?)"
_START: Final = (
    "UPDATE oncegate_lane SET replay = ?1, state = 2, due_at = ?2, attempt = 0, error = NULL,"
    " touched_at = ?2 WHERE id = ?3 AND state <> 3"
)
_PENDING: Final = (
    "SELECT replay.lane, replay.seq FROM oncegate_replay AS replay JOIN oncegate_lane AS lane"
    " ON lane.id = replay.lane WHERE nonce = ? AND NOT (lane.state = 3 AND lane.replay IS replay.seq)"
)
_STOP: Final = (
    "UPDATE oncegate_lane SET replay = NULL, attempt = 0, state = ?, due_at = ?, touched_at = ?"
    " WHERE id = ?"
)


class SqliteLaneDesk(SqliteReplays, SqliteLanes):
    """Steer, retry, skip, replay."""

    def steer(self, wanted: Steering) -> bool:
        """Sets a destination's state."""
        number = self._names.number(wanted.destination)
        known = self._connection.execute(_STATE_OF, (number,)).fetchone()
        state = DestinationState.ACTIVE if known is None else DestinationState(known[0])
        if state is wanted.state and (state is not DestinationState.ACTIVE or not (known and known[1])):
            return False
        self._connection.execute(_STEER, (number, wanted.state.value, wanted.at_ms, wanted.reason))
        self._log(0, STEERED[wanted.state], wanted.at_ms, wanted.actor, steering_note(wanted))
        return True

    def retry_head(self, order: HeadOrder) -> HeadAnswer:
        """Makes a head due now."""
        row, refusal = self._ordered(order)
        if refusal is not None:
            return refusal
        now = self.now_ticks()
        attempt, due_at, state = row[5], row[6], row[8]
        if state == LaneState.WAITING and attempt == 0 and due_at <= now:
            return HeadAnswer.DONE  # it is already
        self._connection.execute(_RETRY, (now, order.lane_id))
        self._connection.execute(_NOT_DEAD, (order.lane_id, order.seq))
        self._log(-order.lane_id, LogKind.HEAD_RETRIED, order.at_ms, order.actor, order_note(order))
        return HeadAnswer.DONE

    def skip_head(self, order: HeadOrder) -> HeadAnswer:
        """Leaves a head out."""
        row, refusal = self._ordered(order)
        if refusal is not None:
            return refusal
        lane, replay, attempt, fence = order.lane_id, row[4], row[5], row[9]
        if replay is None:
            dead = (lane, order.seq, order.at_ms, fence, attempt, skipped_error(order))
            self._connection.execute(_SKIPPED, dead)
        else:
            self._connection.execute(_DROP_REPLAY, (lane, replay))
        nobody = Acknowledgement(lane, order.seq, fence, 0, "", order.at_ms)
        self._move_on(lane, row[:8], nobody, self.now_ticks())
        self._log(-lane, LogKind.HEAD_SKIPPED, order.at_ms, order.actor, order_note(order))
        return HeadAnswer.DONE

    def _ordered(self, order: HeadOrder) -> tuple[Any, HeadAnswer | None]:
        row = self._connection.execute(_HEAD, (order.lane_id,)).fetchone()
        if row is None:
            return row, HeadAnswer.UNKNOWN
        seq, replay, state = row[3], row[4], row[8]
        if state == LaneState.IDLE or order.seq != (seq if replay is None else replay):
            return row, HeadAnswer.NOT_HEAD
        return row, HeadAnswer.IN_FLIGHT if state == LaneState.LEASED else None

    def replay(self, wanted: ReplayWanted) -> Replaying:
        """Lets past deliveries go once more."""
        if not wanted.dry_run and self._is_cancelled(wanted.nonce):
            return Replaying(0, 0, 0, wanted.after_lane, is_end=True, is_cancelled=True)
        rows, is_end = self._replay_lanes(wanted)
        destination = self._names.find(wanted.destination)
        ours = [row for row in rows if row[1] == destination]
        counts = [self._replay_lane(wanted, row) for row in ours]
        deliveries, lanes = sum(n for n in counts if n > 0), sum(n > 0 for n in counts)
        if deliveries and not wanted.dry_run:
            about, note = -(wanted.lane_id or 0), replay_note(wanted, deliveries, lanes)
            self._log(about, LogKind.REPLAY_STARTED, wanted.at_ms, wanted.actor, note)
            self._keep_order(wanted, deliveries, lanes)
        last = rows[-1][0] if rows else wanted.after_lane
        is_cut = any(n == wanted.deliveries_max for n in counts)
        sample = replay_sample([row[0] for row in ours], counts)
        return Replaying(deliveries, lanes, counts.count(-1), last, is_end, is_cut, sample=sample)

    def _replay_lanes(self, wanted: ReplayWanted) -> tuple[list[tuple[Any, ...]], bool]:
        if wanted.lane_id is not None:
            return self._connection.execute(_ONE_LANE, (wanted.lane_id,)).fetchall(), True
        rows = self._connection.execute(_LANES_AFTER, (wanted.after_lane, wanted.limit)).fetchall()
        return rows, len(rows) < wanted.limit

    def _replay_lane(self, wanted: ReplayWanted, row: tuple[Any, ...]) -> int:
        """How many deliveries of a lane are replayed; -1 if it is in a replay already."""
        lane, _, head, replay, _ = row
        to = head - 1 if wanted.seq_to is None else min(wanted.seq_to, head - 1)
        kind = None if wanted.type is None else self._names.find(wanted.type) or -1
        within = (wanted.since_ms, wanted.until_ms, kind)
        asked = (lane, wanted.seq_from, to, wanted.only_dead, wanted.deliveries_max, *within)
        seqs = [seq for (seq,) in self._connection.execute(_PAST, asked)]
        if not seqs:
            return 0
        if replay is not None or self._connection.execute(_IN_REPLAY, (lane,)).fetchone():
            return -1
        if not wanted.dry_run:
            self._connection.executemany(_REPLAY, [(lane, seq, wanted.nonce) for seq in seqs])
            self._connection.execute(_START, (seqs[0], self.now_ticks(), lane))
        return len(seqs)

    def cancel_replay(self, nonce: int, actor: str, reason: str, at_ms: int) -> int:
        """Takes back what was not delivered of a replay."""
        rows = self._connection.execute(_PENDING, (nonce,)).fetchall()
        self._connection.executemany(_DROP_REPLAY, rows)
        for lane in sorted({lane for lane, _ in rows}):
            self._stop_replay(lane)
        if rows:
            self._cancel_order(nonce, len(rows), actor, reason, at_ms)
            self._log(0, LogKind.REPLAY_CANCELLED, at_ms, actor, cancel_note(nonce, len(rows), reason))
        return len(rows)

    def _stop_replay(self, lane: int) -> None:
        row = self._connection.execute(_HEAD, (lane,)).fetchone()
        seq, replay, last_seq, state, now = row[3], row[4], row[7], row[8], self.now_ticks()
        if state == LaneState.LEASED or replay is None:
            return  # what is in flight ends first
        if seq > last_seq:
            state, due = LaneState.IDLE, None
        elif self._is_dead(lane, seq):
            state, due = LaneState.BLOCKED, None
        else:
            state, due = LaneState.WAITING, now
        self._connection.execute(_STOP, (state, due, now, lane))
