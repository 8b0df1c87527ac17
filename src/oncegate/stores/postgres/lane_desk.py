"""Operators' verbs for lanes on PostgreSQL. Mixed into the session, on top of what workers do.

Each verb is one transaction that locks the head it is about first, as workers do.
"""

from __future__ import annotations

from typing import Any, Final

from oncegate.store import (
    DestinationState,
    HeadAnswer,
    HeadOrder,
    LaneState,
    LogKind,
    Replaying,
    ReplayWanted,
    Steering,
)
from oncegate.stores.postgres import lane_statements
from oncegate.stores.postgres.arrays import bigint_array
from oncegate.stores.postgres.lanes import plain
from oncegate.stores.postgres.replays import PostgresReplays
from oncegate.stores.shared.lane_notes import (
    STEERED,
    cancel_note,
    order_note,
    replay_note,
    replay_sample,
    skipped_error,
    steering_note,
)

# Made first, so that two operators at a new destination wait for each other instead of both finding none.
_FIRST_STEER: Final = "INSERT INTO oncegate_destination (id) VALUES (%s) ON CONFLICT (id) DO NOTHING"
_STATE_OF: Final = "SELECT state, not_before FROM oncegate_destination WHERE id = %s FOR UPDATE"
_STEER: Final = """
UPDATE oncegate_destination SET state = %s, since = %s, reason = %s,
       not_before = CASE WHEN %s THEN 0 ELSE not_before END
WHERE id = %s
"""
_RETRY: Final = "UPDATE oncegate_head SET state = 2, due_at = %s, attempt = 0 WHERE lane = %s"
_NOT_DEAD: Final = "DELETE FROM oncegate_dead_letter WHERE lane = %s AND seq = %s"
_SKIPPED: Final = """
INSERT INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (lane, seq) DO NOTHING
"""
_LANES_AFTER: Final = "SELECT id, destination FROM oncegate_lane WHERE id > %s ORDER BY id LIMIT %s"
_ONE_LANE: Final = "SELECT id, destination FROM oncegate_lane WHERE id = %s"
_IN_REPLAY: Final = "SELECT 1 FROM oncegate_replay WHERE lane = %s LIMIT 1"
_PAST: Final = """
SELECT seq FROM oncegate_delivery AS past WHERE lane = %s AND seq BETWEEN %s AND %s
   AND (NOT %s OR EXISTS (SELECT 1 FROM oncegate_dead_letter AS dead
                          WHERE dead.lane = past.lane AND dead.seq = past.seq))
   AND created_at >= coalesce(%s::bigint, created_at) AND created_at < coalesce(%s::bigint, created_at + 1)
   AND type = coalesce(%s::int, type)
ORDER BY seq LIMIT %s
"""
_REPLAY: Final = (
    "INSERT INTO oncegate_replay (lane, seq, nonce) SELECT %s, unnest(%s::bigint[]), %s::bigint"
)
# A lane that was idle is so no longer: whoever adds to it must leave its head alone.
_START: Final = """
UPDATE oncegate_head SET replay = %s, state = 2, due_at = %s, attempt = 0, error = NULL
WHERE lane = %s AND state <> 3
"""
_LOCK_LANES: Final = """
SELECT id, last_seq FROM oncegate_lane WHERE id = ANY(%s)
ORDER BY destination, tenant, key FOR NO KEY UPDATE
"""
_SET_IDLE: Final = "UPDATE oncegate_lane SET idle = %s WHERE id = %s"
_PENDING: Final = "SELECT DISTINCT lane FROM oncegate_replay WHERE nonce = %s ORDER BY lane"
_DROP_PENDING: Final = """
DELETE FROM oncegate_replay WHERE lane = %s AND nonce = %s AND NOT (%s AND seq = %s) RETURNING seq
"""
_IS_DEAD: Final = "SELECT 1 FROM oncegate_dead_letter WHERE lane = %s AND seq = %s"
_STOP: Final = """
UPDATE oncegate_head SET replay = NULL, attempt = 0, state = %s, due_at = %s WHERE lane = %s
"""


class PostgresLaneDesk(PostgresReplays):
    """Steer, retry, skip, replay."""

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def steer(self, wanted: Steering) -> bool:
        """Sets a destination's state."""
        self._begin()
        number = self._names.learn({wanted.destination})[wanted.destination]
        self._query(_FIRST_STEER, (number,))
        ((known, not_before),) = self._query(_STATE_OF, (number,))
        resumes = wanted.state is DestinationState.ACTIVE
        if known == wanted.state and not (resumes and not_before):
            return False
        reason = plain(wanted.reason)
        self._query(_STEER, (wanted.state.value, wanted.at_ms, reason, resumes, number))
        self._lane_note(0, STEERED[wanted.state], wanted.at_ms, wanted.actor, steering_note(wanted))
        return True

    def retry_head(self, order: HeadOrder) -> HeadAnswer:
        """Makes a head due now."""
        row, refusal = self._ordered(order)
        if refusal is not None:
            return refusal
        now, (_, _, state, _, attempt, due_at, _) = self.now_ticks(), row
        if state == LaneState.WAITING and attempt == 0 and due_at <= now:
            return HeadAnswer.DONE  # it is already
        self._query(_RETRY, (now, order.lane_id))
        self._query(_NOT_DEAD, (order.lane_id, order.seq))
        self._lane_note(-order.lane_id, LogKind.HEAD_RETRIED, order.at_ms, order.actor, order_note(order))
        return HeadAnswer.DONE

    def skip_head(self, order: HeadOrder) -> HeadAnswer:
        """Leaves a head out."""
        row, refusal = self._ordered(order)
        if refusal is not None:
            return refusal
        lane, (_, replay, _, fence, attempt, _, _) = order.lane_id, row
        if replay is None:
            dead = (lane, order.seq, order.at_ms, fence, attempt, plain(skipped_error(order)))
            self._query(_SKIPPED, dead)
        self._move_on(lane)
        if replay is not None:
            self._query(lane_statements.DROP_REPLAY, (lane, replay))
        self._lane_note(-lane, LogKind.HEAD_SKIPPED, order.at_ms, order.actor, order_note(order))
        return HeadAnswer.DONE

    def _ordered(self, order: HeadOrder) -> tuple[tuple[Any, ...], HeadAnswer | None]:
        self._begin()
        rows = self._query(lane_statements.HEAD, (order.lane_id,))
        if not rows:
            return (), HeadAnswer.UNKNOWN
        seq, replay, state = rows[0][:3]
        if state == LaneState.IDLE or order.seq != (seq if replay is None else replay):
            return rows[0], HeadAnswer.NOT_HEAD
        return rows[0], HeadAnswer.IN_FLIGHT if state == LaneState.LEASED else None

    def replay(self, wanted: ReplayWanted) -> Replaying:
        """Lets past deliveries go once more."""
        self._begin()
        if not wanted.dry_run and self._is_cancelled(wanted.nonce):
            return Replaying(0, 0, 0, wanted.after_lane, is_end=True, is_cancelled=True)
        rows, is_end = self._replay_lanes(wanted)
        destination = self._names.find(wanted.destination)
        ours = [lane for lane, of in rows if of == destination]
        self._lock_lanes(ours)
        counts = [self._replay_lane(wanted, lane) for lane in ours]
        deliveries, lanes = sum(n for n in counts if n > 0), sum(n > 0 for n in counts)
        if deliveries and not wanted.dry_run:
            about, note = -(wanted.lane_id or 0), replay_note(wanted, deliveries, lanes)
            self._lane_note(about, LogKind.REPLAY_STARTED, wanted.at_ms, wanted.actor, note)
            self._keep_order(wanted, deliveries, lanes)
        last = rows[-1][0] if rows else wanted.after_lane
        is_cut = any(n == wanted.deliveries_max for n in counts)
        sample = replay_sample(ours, counts)
        return Replaying(deliveries, lanes, counts.count(-1), last, is_end, is_cut, sample=sample)

    def _replay_lanes(self, wanted: ReplayWanted) -> tuple[list[tuple[Any, ...]], bool]:
        if wanted.lane_id is not None:
            return self._query(_ONE_LANE, (wanted.lane_id,)), True
        rows = self._query(_LANES_AFTER, (wanted.after_lane, wanted.limit))
        return rows, len(rows) < wanted.limit

    def _replay_lane(self, wanted: ReplayWanted, lane: int) -> int:
        """How many deliveries of a lane are replayed; -1 if it is in a replay already."""
        rows = self._query(lane_statements.HEAD, (lane,))
        if not rows:
            return 0
        head, replay = rows[0][:2]
        to = head - 1 if wanted.seq_to is None else min(wanted.seq_to, head - 1)
        kind = None if wanted.type is None else self._names.find(wanted.type) or -1
        within = (wanted.since_ms, wanted.until_ms, kind)
        asked = (lane, wanted.seq_from, to, wanted.only_dead, *within, wanted.deliveries_max)
        seqs = [seq for (seq,) in self._query(_PAST, asked)]
        if not seqs:
            return 0
        if replay is not None or self._query(_IN_REPLAY, (lane,)):
            return -1
        if not wanted.dry_run:
            self._query(_REPLAY, (lane, bigint_array(seqs), wanted.nonce))
            self._query(_START, (seqs[0], self.now_ticks(), lane))
            self._query(_SET_IDLE, (0, lane))
        return len(seqs)

    def cancel_replay(self, nonce: int, actor: str, reason: str, at_ms: int) -> int:
        """Takes back what was not delivered of a replay."""
        self._begin()
        self._is_cancelled(nonce)  # holds the order: nothing is planted under it meanwhile
        lanes = [lane for (lane,) in self._query(_PENDING, (nonce,))]
        last_seqs = self._lock_lanes(lanes)
        taken_back = sum(self._stop_replay(lane, nonce, last_seqs[lane]) for lane in lanes)
        if taken_back:
            self._cancel_order(nonce, taken_back, actor, reason, at_ms)
            self._lane_note(
                0, LogKind.REPLAY_CANCELLED, at_ms, actor, cancel_note(nonce, taken_back, reason)
            )
        return taken_back

    def _lock_lanes(self, lanes: list[int]) -> dict[int, int]:
        """Keeps others from adding to lanes, in the order in which they lock them; tells the last seqs."""
        return dict(self._query(_LOCK_LANES, (bigint_array(lanes),)))

    def _stop_replay(self, lane: int, nonce: int, last_seq: int) -> int:
        ((seq, replay, state, *_),) = self._query(lane_statements.HEAD, (lane,))
        in_flight = state == LaneState.LEASED
        dropped = self._query(_DROP_PENDING, (lane, nonce, in_flight and replay is not None, replay))
        if not dropped or in_flight or replay is None:
            return len(dropped)  # what is in flight ends first
        if seq > last_seq:
            self._query(_SET_IDLE, (1, lane))
            self._query(_STOP, (LaneState.IDLE.value, None, lane))
        elif self._query(_IS_DEAD, (lane, seq)):
            self._query(_STOP, (LaneState.BLOCKED.value, None, lane))
        else:
            self._query(_STOP, (LaneState.WAITING.value, self.now_ticks(), lane))
        return len(dropped)
