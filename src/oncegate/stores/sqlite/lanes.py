"""Lanes on the embedded ledger: what workers do. Mixed into the session.

Every change of a leased head names its fence and holder; a changed row count is the only thing that says it
happened. Must never look for work among lanes that have none: only `due_at` is searched.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Any, Final

from oncegate.store import (
    Acknowledgement,
    Advanced,
    Delivery,
    Failure,
    GivenUp,
    HeadHeld,
    Heads,
    HeadsWanted,
    LaneState,
    LogKind,
    Outgoing,
    Placed,
    Placing,
    Policy,
    Throttling,
)
from oncegate.store.lanes import ENQUEUER, conflict_note
from oncegate.stores.sqlite.names import Names

_EVENT: Final = "SELECT lane, seq, fingerprint FROM oncegate_delivery WHERE destination = ? AND event = ?"
_APPEND: Final = (
    "INSERT INTO oncegate_lane"
    " (destination, tenant, key, last_seq, seq, state, due_at, fence, attempt, touched_at)"
    " VALUES (?1, ?2, ?3, 1, 1, 2, ?4, 0, 0, ?4)"
    " ON CONFLICT (destination, tenant, key) DO UPDATE SET last_seq = last_seq + 1,"
    " state = CASE state WHEN 1 THEN 2 ELSE state END,"
    " due_at = CASE state WHEN 1 THEN ?4 ELSE due_at END RETURNING id, last_seq, last_seq - seq"
)
_SHORTEN: Final = "UPDATE oncegate_lane SET last_seq = last_seq - 1 WHERE id = ?"
_DELIVERY: Final = (
    "INSERT INTO oncegate_delivery"
    " (lane, seq, destination, type, created_at, fingerprint, event, context, payload)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_CLOSED: Final = "SELECT 1 FROM oncegate_destination WHERE id = ? AND (state <> 1 OR not_before > ?)"
_DUE: Final = (
    "SELECT id, tenant, key, coalesce(replay, seq), replay, fence, attempt"
    " FROM oncegate_lane WHERE destination = ? AND due_at <= ? ORDER BY due_at LIMIT ?"
)
_NEXT_DUE: Final = "SELECT min(due_at) FROM oncegate_lane WHERE destination = ? AND due_at > ?"
_OPENS_AT: Final = "SELECT not_before FROM oncegate_destination WHERE id = ? AND state = 1"
_LEASE: Final = (
    "UPDATE oncegate_lane SET state = 3, fence = fence + 1, holder = ?, due_at = ?, touched_at = ?"
    " WHERE id = ?"
)
_BODY: Final = (
    "SELECT event, type, payload, context, created_at FROM oncegate_delivery WHERE lane = ? AND seq = ?"
)
_NONCE: Final = "SELECT nonce FROM oncegate_replay WHERE lane = ? AND seq = ?"
_HELD: Final = (
    "SELECT destination, tenant, key, seq, replay, attempt, due_at, last_seq FROM oncegate_lane"
    " WHERE id = ? AND fence = ? AND holder = ? AND state = 3"
)
_ACK: Final = (
    "INSERT OR REPLACE INTO oncegate_ack (delivery, at, fence, attempts, note)"
    " SELECT id, ?, ?, ?, ? FROM oncegate_delivery WHERE lane = ? AND seq = ?"
)
_REPLAYED: Final = (
    "DELETE FROM oncegate_replay WHERE lane = ? AND seq = ?",
    "DELETE FROM oncegate_dead_letter WHERE lane = ? AND seq = ?",
)
_NEXT_REPLAY: Final = "SELECT min(seq) FROM oncegate_replay WHERE lane = ? AND seq > ?"
_MOVE: Final = (
    "UPDATE oncegate_lane SET seq = ?, replay = ?, state = ?, due_at = ?, fence = fence + ?, holder = ?,"
    " attempt = 0, error = NULL, touched_at = ? WHERE id = ?"
)
_FAIL: Final = (
    "UPDATE oncegate_lane SET state = 2, due_at = ?, attempt = attempt + ?, error = coalesce(?, error),"
    " holder = NULL, touched_at = ? WHERE id = ? AND fence = ? AND holder = ? AND state = 3"
)
# A replay that was asked for while the head was in flight begins when that attempt has ended.
_BEGIN_REPLAY: Final = (
    "UPDATE oncegate_lane SET replay = (SELECT min(seq) FROM oncegate_replay WHERE lane = ?1),"
    " attempt = 0, due_at = ?2 WHERE id = ?1 AND state = 2 AND replay IS NULL"
    " AND EXISTS (SELECT 1 FROM oncegate_replay WHERE lane = ?1)"
)
_EXTEND: Final = (
    "UPDATE oncegate_lane SET due_at = ?, touched_at = ?"
    " WHERE id = ? AND fence = ? AND holder = ? AND state = 3"
)
_DEAD: Final = (
    "INSERT OR REPLACE INTO oncegate_dead_letter (lane, seq, at, fence, attempts, error)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
_IS_DEAD: Final = "SELECT 1 FROM oncegate_dead_letter WHERE lane = ? AND seq = ?"
# Where the run of dead letters that ends before a seq begins.
_FIRST_DEAD: Final = (
    "SELECT max(seq) FROM oncegate_dead_letter AS dead WHERE lane = ?1 AND seq < ?2 AND NOT EXISTS"
    " (SELECT 1 FROM oncegate_dead_letter AS earlier WHERE lane = ?1 AND earlier.seq = dead.seq - 1)"
)
_BLOCK: Final = (
    "UPDATE oncegate_lane SET state = 4, due_at = NULL, holder = NULL, attempt = ?, error = ?,"
    " touched_at = ? WHERE id = ?"
)
_THROTTLE: Final = (
    "INSERT INTO oncegate_destination (id, not_before) VALUES (?1, ?2)"
    " ON CONFLICT (id) DO UPDATE SET not_before = max(not_before, ?2)"
)
_BY_HOLDER: Final = (
    "SELECT holder, destination, id, tenant, key, coalesce(replay, seq), replay, fence, attempt, due_at"
    " FROM oncegate_lane INDEXED BY oncegate_lane_open WHERE state <> 1 AND state = 3"
)
_ENDED: Final = (
    "SELECT 1 FROM oncegate_delivery AS event WHERE lane = ?1 AND seq = ?2 AND event.event = ?4 AND ("
    " EXISTS (SELECT 1 FROM oncegate_lane WHERE id = ?1 AND fence = ?3 AND state <> 3)"
    " OR EXISTS (SELECT 1 FROM oncegate_ack WHERE delivery = event.id AND fence = ?3)"
    " OR EXISTS (SELECT 1 FROM oncegate_dead_letter WHERE lane = ?1 AND seq = ?2 AND fence = ?3))"
)

Moved = tuple[Any, ...]  # destination, tenant, key, seq, replay, attempt, due_at, last_seq


class SqliteLanes:
    """Enqueue, lease, finish, fail, give up."""

    _connection: sqlite3.Connection
    _names: Names

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def _log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        raise NotImplementedError

    def enqueue(self, events: Sequence[Outgoing]) -> list[Placed]:
        """Appends events to their lanes, one after the other."""
        now = self.now_ticks()
        return [self._enqueue(event, now) for event in events]

    def _enqueue(self, event: Outgoing, now: int) -> Placed:
        number, execute = self._names.number, self._connection.execute
        destination = number(event.destination)
        known = execute(_EVENT, (destination, event.event_id)).fetchone()
        if known is not None:
            lane, seq, fingerprint = known
            if fingerprint == event.fingerprint:
                return Placed(Placing.KNOWN, lane, seq)
            self._log(-lane, LogKind.CONFLICT, event.created_at_ms, ENQUEUER, conflict_note(event))
            return Placed(Placing.CONFLICT, lane, seq)
        place = (destination, number(event.tenant), event.key, now)
        lane, seq, waiting = execute(_APPEND, place).fetchone()
        if waiting >= event.backlog_max:
            execute(_SHORTEN, (lane,))
            return Placed(Placing.FULL, lane, 0)
        execute(
            _DELIVERY,
            (
                lane, seq, destination, number(event.type), event.created_at_ms, event.fingerprint,
                event.event_id, event.context, event.payload,
            ),
        )  # fmt: skip
        return Placed(Placing.NEW, lane, seq)

    def lease_heads(self, wanted: HeadsWanted) -> Heads:
        """Leases what is due of each destination."""
        now = self.now_ticks()
        until = now + wanted.lease_ms
        leased: list[Delivery] = []
        next_due: list[int] = []
        for name, limit in wanted.wanted:
            destination = self._names.find(name)
            if destination is None:
                continue
            if not self._is_closed(destination, now):
                rows = self._connection.execute(_DUE, (destination, now, limit)).fetchall()
                self._connection.executemany(_LEASE, [(wanted.holder, until, now, row[0]) for row in rows])
                leased += [self._delivery(name, row, until, wanted.holder) for row in rows]
            next_due += self._next_due(destination, now)
        return Heads(tuple(leased), now, min(next_due, default=None))

    def _is_closed(self, destination: int, now: int) -> bool:
        return self._connection.execute(_CLOSED, (destination, now)).fetchone() is not None

    def _next_due(self, destination: int, now: int) -> list[int]:
        (due,) = self._connection.execute(_NEXT_DUE, (destination, now)).fetchone()
        opens = self._connection.execute(_OPENS_AT, (destination,)).fetchone()
        times = [due, opens and opens[0]]
        return [time for time in times if time is not None and time > now]

    def _delivery(self, destination: str, row: tuple[Any, ...], until: int, holder: int) -> Delivery:
        """A lane as `_DUE` shows it, before it was leased."""
        lane, tenant, key, seq, replay, fence, attempt = row
        event, kind, payload, context, created = self._connection.execute(_BODY, (lane, seq)).fetchone()
        text = self._names.text
        return Delivery(
            lane, fence + 1, holder, destination, text(tenant), key, seq, attempt + 1, event, text(kind),
            payload, context, created, until, None if replay is None else self._nonce(lane, seq),
            self._previous(lane, seq) if replay is None else None,
        )  # fmt: skip

    def _previous(self, lane: int, seq: int) -> int | None:
        if seq == 1 or not self._is_dead(lane, seq - 1):
            return None
        (first,) = self._connection.execute(_FIRST_DEAD, (lane, seq)).fetchone()
        return int(first) - 1

    def _nonce(self, lane: int, seq: int) -> int | None:
        row = self._connection.execute(_NONCE, (lane, seq)).fetchone()
        return None if row is None else int(row[0])

    def leased_by(self, holders: Collection[int]) -> list[Delivery]:
        """Reads what some holders have."""
        rows = self._connection.execute(_BY_HOLDER).fetchall()
        text = self._names.text
        return [
            self._delivery(text(destination), (*lane, fence - 1, attempt), due_at, holder)
            for holder, destination, *lane, fence, attempt, due_at in rows
            if holder in holders
        ]

    def finish(self, acks: Sequence[Acknowledgement]) -> list[Advanced]:
        """Records deliveries and moves their lanes on."""
        now = self.now_ticks()
        return [self._finish(ack, now) for ack in acks]

    def _finish(self, ack: Acknowledgement, now: int) -> Advanced:
        held = self._connection.execute(_HELD, (ack.lane_id, ack.fence, ack.holder)).fetchone()
        if held is None:
            return Advanced(False)
        _, _, _, seq, replay, attempt, _, _ = held
        done = seq if replay is None else replay
        record = (ack.at_ms, ack.fence, attempt + 1, ack.note or None, ack.lane_id, done)
        self._connection.execute(_ACK, record)
        if replay is not None:
            for sql in _REPLAYED:
                self._connection.execute(sql, (ack.lane_id, replay))
        return Advanced(True, self._move_on(ack.lane_id, held, ack, now))

    def _move_on(
        self, lane: int, held: Moved, asked: Acknowledgement | GivenUp, now: int
    ) -> Delivery | None:
        """Moves a lane on to what comes next; leases it if that was asked for and may be."""
        destination, tenant, key, seq, replay, _, due_at, last_seq = held
        (follows,) = self._connection.execute(_NEXT_REPLAY, (lane, replay or 0)).fetchone()
        head = seq + 1 if replay is None else seq
        chained = 0
        if follows is None and head > last_seq:
            state, due = LaneState.IDLE, None
        elif follows is None and replay is not None and self._is_dead(lane, head):
            state, due = LaneState.BLOCKED, None  # as it was before the replay
        elif asked.lease_ms and not self._is_closed(destination, now):
            # A lease that is still long is kept as it is, as on the other ledger.
            long = due_at is not None and due_at - now >= asked.lease_ms // 2
            state, due, chained = LaneState.LEASED, due_at if long else now + asked.lease_ms, 1
        else:
            state, due = LaneState.WAITING, now
        holder = asked.next_holder if chained else None
        self._connection.execute(_MOVE, (head, follows, state, due, chained, holder, now, lane))
        if holder is None or due is None:
            return None
        fence = asked.fence
        row = (lane, tenant, key, head if follows is None else follows, follows, fence, 0)
        return self._delivery(self._names.text(destination), row, due, holder)

    def _is_dead(self, lane: int, seq: int) -> bool:
        return self._connection.execute(_IS_DEAD, (lane, seq)).fetchone() is not None

    def fail(self, failures: Sequence[Failure]) -> list[bool]:
        """Lets heads wait for their next try."""
        now = self.now_ticks()
        return [self._fail(f, now, (now + f.retry_in_ms, int(f.counts), f.error or None)) for f in failures]

    def release(self, held: Sequence[HeadHeld]) -> list[bool]:
        """Gives heads back."""
        now = self.now_ticks()
        return [self._fail(item, now, (now, 0, None)) for item in held]

    def _fail(self, held: Failure | HeadHeld, now: int, outcome: tuple[Any, ...]) -> bool:
        ended = self._ends(_FAIL, (*outcome, now, held.lane_id, held.fence, held.holder))
        if ended:
            self._connection.execute(_BEGIN_REPLAY, (held.lane_id, now))
        return ended

    def extend(self, held: Sequence[HeadHeld]) -> list[bool]:
        """Extends leases."""
        now = self.now_ticks()
        return [self._ends(_EXTEND, (now + i.lease_ms, now, i.lane_id, i.fence, i.holder)) for i in held]

    def _ends(self, sql: str, parameters: tuple[Any, ...]) -> bool:
        return self._connection.execute(sql, parameters).rowcount == 1

    def dead_letter(self, given_up: Sequence[GivenUp]) -> list[Advanced]:
        """Records dead letters; their lanes are blocked or go on."""
        now = self.now_ticks()
        return [self._give_up_head(item, now) for item in given_up]

    def _give_up_head(self, item: GivenUp, now: int) -> Advanced:
        held = self._connection.execute(_HELD, (item.lane_id, item.fence, item.holder)).fetchone()
        if held is None:
            return Advanced(False)
        lane, seq = item.lane_id, held[3] if held[4] is None else held[4]
        attempts = held[5] + 1
        self._connection.execute(_DEAD, (lane, seq, item.at_ms, item.fence, attempts, item.error))
        self._log(-lane, LogKind.DEAD_LETTERED, item.at_ms, item.actor, f"seq {seq}: {item.error}")
        if item.policy is Policy.BLOCK:
            self._connection.execute(_BLOCK, (attempts, item.error, now, lane))
            return Advanced(True)
        if held[4] is not None:
            self._connection.execute(_REPLAYED[0], (lane, seq))
        return Advanced(True, self._move_on(lane, held, item, now))

    def throttle(self, wanted: Throttling) -> None:
        """Leaves a destination alone for a while."""
        until = self.now_ticks() + wanted.for_ms
        self._connection.execute(_THROTTLE, (self._names.number(wanted.destination), until))

    def lease_ended(self, ended: Acknowledgement | GivenUp) -> bool:
        """Looks whether a lease was ended by its holder."""
        asked = (ended.lane_id, ended.seq, ended.fence, ended.event_id)
        return self._connection.execute(_ENDED, asked).fetchone() is not None
