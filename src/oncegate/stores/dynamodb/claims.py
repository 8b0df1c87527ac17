"""Reserving and recording: one conditional insert for a new key, one conditional change for a known one.

Nothing is read before it is written. A key that is there is judged by what the refused write returned (or,
in a batch, by a consistent read after it). A change that another worker overtook is judged again by what
stands there then. Where that carries this very request's number, the request was carried out before, and
the answer to it is given: a client that repeats a request below us makes no second claim and loses none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field

from oncegate.errors import ConfigError, StoreUnavailable
from oncegate.model.conflicts import LOGGED_MAX
from oncegate.model.states import Decision, State, conflict_note, free_in_ms, judge, why_given_up
from oncegate.store import CLAIM_KINDS, ClaimNote, LogKind, Reservation, Reserved, StepRecord
from oncegate.stores.dynamodb.changes import Change, Insertion, Path, request_number
from oncegate.stores.dynamodb.items import (
    FAR_FUTURE_S,
    MINUTE_MS,
    SHARDS,
    WITHDRAWN,
    Item,
    ItemRow,
    Value,
    binary,
    number,
    pack_record,
    read_row,
    text,
    unpack_step,
)
from oncegate.stores.dynamodb.ledger_time import LedgerTime
from oncegate.stores.dynamodb.parts import BODY_INLINE_MAX, OUTCOME_INLINE_MAX, Parts
from oncegate.stores.dynamodb.writing import ItemWriter, rounds
from oncegate.stores.shared.open_lists import WAITING, number_of

_RACES_MAX: Final = 20  # others who change the same key between two writes of ours
_NOTED_MAX: Final = 20_000
EXPIRY_SPARE_S: Final = 2 * 24 * 3600  # keys outlive their retention by this


class ClaimNotes(Struct):
    """What this process knows of a claim that it made, and its end needs."""

    keep_s: int
    parts: list[str] = field(default_factory=list)  # of step results
    body: str | None = None  # the event's parts


class OwnClaims:
    """Claims that this process has made and not ended, the oldest forgotten first.

    A claim that is not among them is ended all the same, with one more computation at the service.
    """

    def __init__(self) -> None:
        self._notes: OrderedDict[int, ClaimNotes] = OrderedDict()

    def note(self, token: int, notes: ClaimNotes) -> None:
        """Remembers a claim."""
        self._notes[token] = notes
        if len(self._notes) > _NOTED_MAX:
            self._notes.popitem(last=False)

    def of(self, token: int) -> ClaimNotes | None:
        """What is known of a claim."""
        return self._notes.get(token)

    def drop(self, token: int) -> None:
        """Forgets a claim that has ended."""
        self._notes.pop(token, None)


class DynamoClaims:
    """`reserve` and `record`. Mixed into the session."""

    _writer: ItemWriter
    _parts: Parts
    _time: LedgerTime
    _own: OwnClaims

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def _reserve(self, wanted: Sequence[Reservation], outcome: bytes | None) -> list[Reserved]:
        """Decides each; with an outcome, what is new is committed by the write that inserts it."""
        answers: list[Reserved | None] = [None] * len(wanted)
        for some in rounds(wanted):  # the same key again is another arrival, after the first one's
            found = self._reserve_apart([item for _, item in some], outcome)
            for (place, _), answer in zip(some, found, strict=True):
                answers[place] = answer
        return [answer for answer in answers if answer is not None]

    def _reserve_apart(self, wanted: Sequence[Reservation], outcome: bytes | None) -> list[Reserved]:
        if any(item.also for item in wanted):
            raise ConfigError("a surface's key template cannot be changed in a DynamoDB ledger")
        now = self.now_ticks()
        named = None if outcome is None else self._named_outcome(wanted, outcome)
        items = [
            self._new_item(item, now, None if named is None else named[i]) for i, item in enumerate(wanted)
        ]
        known = self._keep_events(wanted, items) if outcome is None else {}
        fresh = [place for place in range(len(wanted)) if place not in known]
        for place, refused in zip(
            fresh, self._writer.insert([Insertion(items[place]) for place in fresh]), strict=True
        ):
            if refused is not None:
                known[place] = refused.item
        settled = outcome is not None
        return [
            self._judged(item, made, known[place], now, settled=settled)
            if place in known
            else self._inserted(item, made, now, settled=settled)
            for place, (item, made) in enumerate(zip(wanted, items, strict=True))
        ]

    def _keep_events(self, wanted: Sequence[Reservation], items: list[Item]) -> dict[int, Item | None]:
        """Puts events into their items. Events that are too long for one are written first, apart.

        Their keys are looked at before that: a repeat writes nothing. Returns what stands under known keys.
        """
        long = []
        for place, item in enumerate(wanted):
            if len(item.body) > BODY_INLINE_MAX:
                long.append(place)
            else:
                items[place]["v"] = binary(item.body)
        known: dict[int, Item | None] = {}
        found = self._writer.read([wanted[place].key for place in long]) if long else []
        for place, there in zip(long, found, strict=True):
            if there is not None:
                known[place] = there
            if there is None or read_row(there).state == WITHDRAWN:
                name = self._parts.write(wanted[place].key, wanted[place].body, None)
                items[place]["bv"] = text(name)
        return known

    def _named_outcome(self, wanted: Sequence[Reservation], outcome: bytes) -> list[Item]:
        """How each of many items holds the same outcome."""
        if len(outcome) <= OUTCOME_INLINE_MAX:
            return [{"oc": binary(outcome)}] * len(wanted)
        until = [self._time.removal(_keep_s(item)) for item in wanted]
        named = [self._parts.write(item.key, outcome, at) for item, at in zip(wanted, until, strict=True)]
        return [{"on": text(name)} for name in named]

    def _new_item(self, item: Reservation, now: int, outcome: Item | None, above: int = 0) -> Item:
        state, reason = item.parked
        keep_s, fence = _keep_s(item), self._time.numbers(now, above)
        made: Item = {
            "k": binary(item.key), "f": number(fence), "at": number(item.received_at_ms),
            "p": binary(item.fingerprint), "sf": text(item.surface), "tn": text(item.tenant),
            "lb": text(item.label), "i": number(0), "st": {"M": {}}, "ke": number(keep_s),
            "z": request_number(),
        }  # fmt: skip
        if item.declared is not None:
            made["d"] = text(item.declared)
        if reason is not None:
            parked = {"s": number(state), "a": number(0), "c": number(0), "rs": text(reason)}
            made |= parked | open_shard(item.key, state, now) | {"e": number(item.received_at_ms)}
            made["hs"] = {"L": [self._record(now, LogKind(state.value), item, reason)]}
            return made
        made |= {"a": number(1), "c": number(1), "t": number(item.token)}
        if outcome is not None:
            made |= {"s": number(State.COMMITTED), "e": number(item.received_at_ms)}
            if (removal := self._time.removal(keep_s)) is not None:
                made["x"] = number(removal)
            made["hs"] = {"L": [self._record(now, LogKind.COMMITTED, item, None)]}
            return made | outcome
        made |= {"s": number(State.IN_FLIGHT), "u": number(now + item.lease_ms), "fr": number(now)}
        return made | open_shard(item.key, State.IN_FLIGHT, now) | {"hs": {"L": []}}

    def _record(self, now: int, kind: LogKind, item: Reservation, note: str | None) -> Item:
        return pack_record(self._time.numbers(now), kind, item.received_at_ms, item.actor, note)

    def _inserted(self, item: Reservation, made: Item, now: int, *, settled: bool) -> Reserved:
        entry, (state, reason) = number_of(item.key), item.parked
        if reason is not None:
            decision = Decision.QUARANTINE if state is State.QUARANTINED else Decision.HOLD
            return Reserved(decision, entry, state=state, reason=reason, now_ticks=now)
        if not settled:
            body = made["bv"]["S"] if "bv" in made else None
            self._own.note(item.token, ClaimNotes(int(made["ke"]["N"]), body=body))
        return Reserved(
            Decision.RUN, entry, int(made["f"]["N"]), first_reserved_ticks=now,
            received_at_ms=item.received_at_ms, now_ticks=now, token=item.token, key=item.key,
        )  # fmt: skip

    def _judged(
        self, item: Reservation, made: Item, there: Item | None, now: int, *, settled: bool
    ) -> Reserved:
        """Decides about a key that is there, again for each time that it was changed meanwhile."""
        for _ in range(_RACES_MAX):
            if there is None:  # it has been removed since: by its time to live
                (refused,) = self._writer.insert([Insertion(made)])
                if refused is None:
                    return self._inserted(item, made, now, settled=settled)
                there = refused.item
                continue
            row = read_row(there)
            if there.get("z") == made["z"]:  # this very request was carried out before
                return self._inserted(item, there, now, settled=settled)
            answer = self._answer(item, made, row, now, settled=settled)
            if isinstance(answer, Reserved):
                return answer
            there = answer.item
        raise StoreUnavailable(
            f"the key {item.key.hex()[:16]} is changed by too many workers at once; nothing was run"
        )

    def _answer(
        self, item: Reservation, made: Item, row: ItemRow, now: int, *, settled: bool
    ) -> Reserved | _Overtaken:
        if row.state == WITHDRAWN:
            return self._take_withdrawn(item, made, row, now, settled=settled)
        known = row.known(at_once=item.at_once, deaths_max=item.deaths_max)
        decision, entry = judge(known, item.fingerprint, now, item.attempts_max), number_of(row.key)
        if decision is Decision.CONFLICT:
            self._log_conflict(item, row, now)
            return Reserved(decision, entry, now_ticks=now)
        if decision.claims:
            return self._take_over(item, row, decision, now)
        reason = row.reason
        if decision is Decision.HOLD and known.state in (State.IN_FLIGHT, State.RETRYABLE):
            reason = why_given_up(known)
            refused = self._give_up(item, row, reason, now)
            if refused is not None:
                return refused
        return Reserved(
            decision, entry, state=known.state, reason=reason, outcome=self._outcome_of(row),
            retry_after_ms=free_in_ms(known, now), now_ticks=now, claimed_again=row.claims > 1,
        )  # fmt: skip

    def _take_withdrawn(
        self, item: Reservation, made: Item, row: ItemRow, now: int, *, settled: bool
    ) -> Reserved | _Overtaken:
        """Inserts over what a withdrawal left, under a higher fence."""
        again = made | {"f": number(self._time.numbers(now, row.fence))}
        sets: dict[Path, Value] = {(name,): value for name, value in again.items() if name != "k"}
        unwanted = [name for name in ("x", "g", "v", "bv") if name not in again]
        refused = self._change(Change(item.key, sets, removes=unwanted, equals=_as_seen(row)))
        if refused is None:
            return self._inserted(item, again, now, settled=settled)
        return refused

    def _take_over(
        self, item: Reservation, row: ItemRow, decision: Decision, now: int
    ) -> Reserved | _Overtaken:
        fence, is_first = self._time.numbers(now, row.fence), row.first_reserved is None
        attempt = row.attempt + 1
        died = row.interruptions + 1 if row.state == State.IN_FLIGHT else 0
        change = Change(item.key, equals=_as_seen(row), removes=["e", "rs", "ry"]).numbered()
        change.sets |= {
            ("s",): number(State.IN_FLIGHT), ("a",): number(attempt), ("f",): number(fence),
            ("t",): number(item.token), ("u",): number(now + item.lease_ms),
            ("c",): number(row.claims + 1), ("i",): number(died),
        }  # fmt: skip
        if is_first:
            change.sets[("fr",)] = number(now)
            if item.declared is not None:
                change.sets[("d",)] = text(item.declared)
        note = str(ClaimNote(attempt, fence, is_first))
        change.log(row, self._record(now, CLAIM_KINDS[decision], item, note))
        refused = self._change(change)
        if refused is not None and not change.was_ours(refused.item):
            return refused
        self._own.note(item.token, _notes_of(row))
        return Reserved(
            decision, number_of(row.key), fence, attempt, State(row.state), self._steps_of(row),
            first_reserved_ticks=row.first_reserved or 0, received_at_ms=row.received_at_ms,
            lapsed_at_ticks=row.lease_until or 0, now_ticks=now, never_run=row.claims == 0,
            declared=None if is_first else row.declared, token=item.token, key=item.key,
            tried_from_ticks=row.tried_from,
        )  # fmt: skip

    def _give_up(self, item: Reservation, row: ItemRow, reason: str, now: int) -> _Overtaken | None:
        change = Change(item.key, equals=_as_seen(row), removes=["t", "ry"]).numbered()
        change.sets |= {
            ("s",): number(State.HELD), ("e",): number(item.received_at_ms), ("rs",): text(reason),
            ("o",): open_shard(item.key, State.HELD, now)["o"],
        }  # fmt: skip
        change.log(row, self._record(now, LogKind.HELD, item, reason))
        refused = self._change(change)
        return None if refused is None or change.was_ours(refused.item) else refused

    def _log_conflict(self, item: Reservation, row: ItemRow, now: int) -> None:
        """Writes down the first conflicts of a key; a key that changed meanwhile is not asked again."""
        if row.count(LogKind.CONFLICT) < LOGGED_MAX:
            record = self._record(now, LogKind.CONFLICT, item, conflict_note(State(row.state)))
            self._change(Change(item.key, records=[record], equals={"p": binary(row.fingerprint)}))

    def _change(self, change: Change) -> _Overtaken | None:
        (refused,) = self._writer.change([change])
        return None if refused is None else _Overtaken(refused.item)

    def _outcome_of(self, row: ItemRow) -> bytes | None:
        return row.outcome if row.outcome_parts is None else self._parts.read(row.key, row.outcome_parts)

    def _body_of(self, row: ItemRow) -> bytes | None:
        return row.body if row.body_parts is None else self._parts.read(row.key, row.body_parts)

    def _steps_of(self, row: ItemRow) -> tuple[StepRecord, ...]:
        return tuple(
            unpack_step(step, step.result if step.parts is None else self._parts.read(row.key, step.parts))
            for step in row.steps
        )


class _Overtaken(Struct):
    """A change that another worker overtook, and what stands there now."""

    item: Item | None


def _as_seen(row: ItemRow) -> Item:
    """The condition that no process has changed a row's claim since it was read."""
    return {"f": number(row.fence), "s": number(row.state)}


def open_shard(key: bytes, state: State, now: int) -> Item:
    """Where the index lists an entry."""
    return {
        "o": number(key[0] % SHARDS + (SHARDS if state in WAITING else 0)),
        "r": number(now // MINUTE_MS),
    }


def _keep_s(item: Reservation) -> int:
    """How long a final entry must be there, in seconds."""
    return item.keep_ms // 1000 + EXPIRY_SPARE_S if item.keep_ms else FAR_FUTURE_S


def _notes_of(row: ItemRow) -> ClaimNotes:
    return ClaimNotes(row.keep_s, [step.parts for step in row.steps if step.parts], row.body_parts)
