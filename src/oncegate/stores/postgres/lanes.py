"""Lanes on PostgreSQL: what workers do, right across many processes. Mixed into the session.

Every change of a leased head names its fence and holder, and what a statement says it changed is the only
truth. Must never wait for a user's transaction while holding a head.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

from oncegate.errors import StoreBusy
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
from oncegate.stores.postgres import lane_statements, statements
from oncegate.stores.postgres.arrays import Packed, bigint_array, bytea_array, integer_array, text_array
from oncegate.stores.postgres.names import Names
from oncegate.stores.postgres.placeholders import to_numbered
from oncegate.stores.postgres.wire import Rows, WireCommand

ENQUEUE_TRIES_MAX: Final = 20  # each lost round means that somebody else has committed one of the ids
PLACINGS: Final = (Placing.NEW, Placing.KNOWN, Placing.CONFLICT)
FULL: Final = Placed(Placing.FULL, 0, 0)
_BY_KEPT_PLAN: Final = WireCommand(lane_statements.BY_KEPT_PLAN)

Held = TypeVar("Held", Failure, HeadHeld)


class LostRace(Exception):
    """Another process committed one of the ids meanwhile; nothing was changed."""


class PostgresLanes:
    """Enqueue, lease, finish, fail, give up."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _query_all(self, commands: list[WireCommand]) -> list[Rows]:
        raise NotImplementedError

    def _ticks(self) -> int | None:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _racing(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Runs a statement that fails, and changes nothing, where it lost a race: raises LostRace."""
        raise NotImplementedError

    def _work(self, sql: str, parameters: tuple[Any, ...]) -> Rows:
        """Runs a worker's statement by its kept plan."""
        return self._query_all([_BY_KEPT_PLAN, WireCommand(to_numbered(sql), parameters)])[-1]

    def enqueue(self, events: Sequence[Outgoing]) -> list[Placed]:
        """Appends events to their lanes with one statement; ids that come again are looked up after."""
        first: dict[tuple[str, str], int] = {}
        for place, event in enumerate(events):
            first.setdefault((event.destination, event.event_id), place)
        places = list(first.values())
        if len(places) < len(events):
            self._begin()
        answers = dict(zip(places, self._place([events[place] for place in places]), strict=True))
        again = [place for place in range(len(events)) if place not in answers]
        if again:
            answers |= zip(again, self.enqueue([events[place] for place in again]), strict=True)
        return [answers[place] for place in range(len(events))]

    def _place(self, batch: list[Outgoing]) -> list[Placed]:
        """Places events whose ids are different; those with one limit go together."""
        limits = dict.fromkeys(event.backlog_max for event in batch)
        if len(limits) > 1:
            self._begin()
        answers: dict[int, Placed] = {}
        for most in limits:
            places = [place for place, event in enumerate(batch) if event.backlog_max == most]
            placed = self._place_within([batch[place] for place in places], most)
            answers |= zip(places, placed, strict=True)
        return [answers[place] for place in range(len(batch))]

    def _place_within(self, batch: list[Outgoing], most: int) -> list[Placed]:
        arrays = self._enqueue_arrays(batch)
        for _ in range(ENQUEUE_TRIES_MAX):
            try:
                rows = self._racing(lane_statements.ENQUEUE, (self._ticks(), *arrays, most))
            except LostRace:
                continue
            placed = {place: Placed(PLACINGS[how], lane, seq) for place, lane, seq, how, _ in rows}
            answers = [placed.get(place, FULL) for place in range(1, len(batch) + 1)]
            self._note_conflicts(batch, answers)
            return answers
        raise StoreBusy("the same events are being published elsewhere; try again")

    def _note_conflicts(self, batch: list[Outgoing], answers: list[Placed]) -> None:
        for event, placed in zip(batch, answers, strict=True):
            if placed.placing is Placing.CONFLICT:
                note, at_ms = conflict_note(event), event.created_at_ms
                actor = self._names.learn({ENQUEUER})[ENQUEUER]
                self._query(statements.LOG_CONFLICT, (-placed.lane_id, at_ms, actor, plain(note)))

    def _enqueue_arrays(self, batch: list[Outgoing]) -> tuple[Packed, ...]:
        names = self._names.learn({n for e in batch for n in (e.destination, e.tenant, e.type)})
        return (
            integer_array([names[event.destination] for event in batch]),
            integer_array([names[event.tenant] for event in batch]),
            text_array([event.key for event in batch]),
            text_array([event.event_id for event in batch]),
            integer_array([names[event.type] for event in batch]),
            bigint_array([event.created_at_ms for event in batch]),
            bytea_array([event.fingerprint for event in batch]),
            bytea_array([event.context for event in batch]),
            bytea_array([event.payload for event in batch]),
        )

    def lease_heads(self, wanted: HeadsWanted) -> Heads:
        """Looks which destinations have work, then leases it; without work nothing is written."""
        limits = {self._names.find(name): limit for name, limit in wanted.wanted}
        numbers = [number for number in limits if number is not None]
        rows = self._work(lane_statements.PEEK, (self._ticks(), integer_array(numbers)))
        busy = sorted(number for number, _, is_due, _, _ in rows if is_due)
        if len(busy) > 1:
            self._begin()
        leased = [d for number in busy for d in self._lease(number, limits[number], wanted)]
        times = [time for row in rows for time in row[3:] if time is not None]
        now = rows[0][1] if rows else 0
        return Heads(tuple(leased), now, min(times, default=None))

    def _lease(self, destination: int, limit: int, wanted: HeadsWanted) -> list[Delivery]:
        parameters = (self._ticks(), destination, limit, wanted.holder, wanted.lease_ms)
        rows = self._work(lane_statements.LEASE, parameters)
        empty = [row[0] for row in rows if row[1] is None]
        if empty:
            self._query(lane_statements.SETTLE_EMPTY, (self._ticks(), bigint_array(empty)))
        return self._deliveries([row[1:] for row in rows if row[1] is not None])

    def _deliveries(self, rows: list[tuple[Any, ...]]) -> list[Delivery]:
        texts = self._names.texts({number for row in rows for number in (row[3], row[4], row[9])})
        return [_delivery(row, texts) for row in rows]

    def leased_by(self, holders: Collection[int]) -> list[Delivery]:
        """Reads what some holders have."""
        return self._deliveries(self._query(lane_statements.BY_HOLDER, (bigint_array(list(holders)),)))

    def finish(self, acks: Sequence[Acknowledgement]) -> list[Advanced]:
        """Records deliveries and moves their lanes on, with one statement."""
        places = _once_each(acks)
        batch = [acks[place] for place in places]
        rows = self._work(
            lane_statements.FINISH,
            (
                self._ticks(),
                bigint_array([ack.lane_id for ack in batch]),
                bigint_array([ack.fence for ack in batch]),
                bigint_array([ack.holder for ack in batch]),
                bigint_array([ack.at_ms for ack in batch]),
                text_array([ack.note or None for ack in batch]),
                bigint_array([ack.lease_ms for ack in batch]),
                bigint_array([ack.next_holder for ack in batch]),
            ),
        )
        done = dict(zip((places[row[0] - 1] for row in rows), self._advanced(rows), strict=True))
        return [done.get(place, Advanced(False)) for place in range(len(acks))]

    def _advanced(self, rows: list[tuple[Any, ...]]) -> list[Advanced]:
        leased = iter(self._deliveries([row[2:] for row in rows if row[1]]))
        return [Advanced(True, next(leased)) if row[1] else Advanced(True) for row in rows]

    def fail(self, failures: Sequence[Failure]) -> list[bool]:
        """Lets heads wait for their next try."""
        return self._end(lane_statements.FAIL, failures, _failures)

    def release(self, held: Sequence[HeadHeld]) -> list[bool]:
        """Gives heads back."""
        return self.fail([Failure(i.lane_id, i.fence, i.holder, 0, "", counts=False) for i in held])

    def extend(self, held: Sequence[HeadHeld]) -> list[bool]:
        """Extends leases."""
        return self._end(lane_statements.EXTEND, held, _leases)

    def _end(
        self, sql: str, asked: Sequence[Held], arrays: Callable[[list[Held]], tuple[Packed, ...]]
    ) -> list[bool]:
        places = _once_each(asked)
        batch: list[Held] = [asked[place] for place in places]
        lanes = bigint_array([item.lane_id for item in batch])
        fences = bigint_array([item.fence for item in batch])
        holders = bigint_array([item.holder for item in batch])
        rows = self._work(sql, (self._ticks(), lanes, fences, holders, *arrays(batch)))
        done = {places[place - 1] for (place,) in rows}
        return [place in done for place in range(len(asked))]

    def dead_letter(self, given_up: Sequence[GivenUp]) -> list[Advanced]:
        """Records dead letters in one transaction, lanes in order."""
        self._begin()
        answers: dict[int, Advanced] = {}
        for place in sorted(range(len(given_up)), key=lambda place: given_up[place].lane_id):
            answers[place] = self._give_up_head(given_up[place])
        return [answers[place] for place in range(len(given_up))]

    def _give_up_head(self, item: GivenUp) -> Advanced:
        rows = self._query(lane_statements.HEAD, (item.lane_id,))
        if not rows:
            return Advanced(False)
        lane, (head, replay, state, fence, attempt, _, holder) = item.lane_id, rows[0]
        if (state, fence, holder) != (LaneState.LEASED, item.fence, item.holder):
            return Advanced(False)
        seq, attempts, error = head if replay is None else replay, attempt + 1, plain(item.error)
        self._query(lane_statements.DEAD, (lane, seq, item.at_ms, item.fence, attempts, error))
        self._lane_note(-lane, LogKind.DEAD_LETTERED, item.at_ms, item.actor, f"seq {seq}: {error}")
        if item.policy is Policy.BLOCK:
            self._query(lane_statements.BLOCK, (attempts, error, lane))
            return Advanced(True)
        advanced = self._move_on(lane, item.lease_ms, item.next_holder)
        if replay is not None:
            self._query(lane_statements.DROP_REPLAY, (lane, replay))
        return advanced

    def _move_on(self, lane: int, lease_ms: int = 0, next_holder: int = 0) -> Advanced:
        rows = self._query(lane_statements.ADVANCE, (self._ticks(), lease_ms, next_holder, lane))
        return self._advanced(rows)[0]

    def _lane_note(self, about: int, kind: LogKind, at_ms: int, actor: str, note: str) -> None:
        number = self._names.learn({actor})[actor]
        self._query(statements.LOG, (about, kind.value, at_ms, number, plain(note)))

    def throttle(self, wanted: Throttling) -> None:
        """Leaves a destination alone for a while."""
        number = self._names.learn({wanted.destination})[wanted.destination]
        self._query(lane_statements.THROTTLE, (self._ticks(), number, wanted.for_ms))

    def lease_ended(self, ended: Acknowledgement | GivenUp) -> bool:
        """Looks whether a lease was ended by its holder."""
        lane, seq, fence = ours = (ended.lane_id, ended.seq, ended.fence)
        asked = (lane, seq, ended.event_id, lane, fence, *ours, *ours)
        ((is_over,),) = self._query(lane_statements.ENDED, asked)
        return bool(is_over)


def plain(text: str) -> str:
    """U+0000 is not text in PostgreSQL and is made visible."""
    return text.replace("\0", "\u2400")


def _once_each(items: Sequence[Acknowledgement | Failure | HeadHeld]) -> list[int]:
    """Places of what may end a lease, which can happen once only, by lane: all lock in the same order."""
    first: dict[tuple[int, int, int], int] = {}
    for place, item in enumerate(items):
        first.setdefault((item.lane_id, item.fence, item.holder), place)
    return [first[held] for held in sorted(first)]


def _failures(batch: list[Failure]) -> tuple[Packed, ...]:
    return (
        bigint_array([item.retry_in_ms for item in batch]),
        integer_array([int(item.counts) for item in batch]),
        text_array([item.error or None for item in batch]),
    )


def _leases(batch: list[HeadHeld]) -> tuple[Packed, ...]:
    return (bigint_array([item.lease_ms for item in batch]),)


def _delivery(row: tuple[Any, ...], texts: dict[int, str]) -> Delivery:
    lane, fence, holder, destination, tenant, key, seq, attempt, event, kind, payload, context, *rest = row
    return Delivery(
        lane, fence, holder, texts[destination], texts[tenant], key, seq, attempt, event, texts[kind],
        bytes(payload), bytes(context), *rest,
    )  # fmt: skip
