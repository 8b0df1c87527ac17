"""Claims on PostgreSQL: one statement a batch, right under READ COMMITTED and across many processes.

Mixed into the session. Must never rely on what an earlier statement saw: every change names the fence, and
what it says it changed is the only truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from psycopg.types.numeric import Int8

from oncegate.errors import StoreBusy
from oncegate.model.states import State
from oncegate.store import (
    Attachment,
    ClaimId,
    Entry,
    LogKind,
    Renewal,
    Reservation,
    Reserved,
    Settlement,
    Statement,
    StepRecord,
    StepRecords,
)
from oncegate.store.alternatives import by_known_keys, has_alternatives, told_apart
from oncegate.stores.postgres import reserve_statements, settle_statements, statements
from oncegate.stores.postgres.arrays import (
    Packed,
    bigint_array,
    bytea_array,
    integer_array,
    text_array,
    text_value,
)
from oncegate.stores.postgres.failures import is_deadlock, rejected
from oncegate.stores.postgres.fused import PostgresFusing
from oncegate.stores.postgres.names import Names
from oncegate.stores.postgres.placeholders import to_numbered
from oncegate.stores.postgres.record_only import PostgresRecording, arrival_arrays, mark_arrays
from oncegate.stores.postgres.statement_generators import (
    JUDGE_ROUNDS_MAX,
    ends_for_good,
    is_first_claim,
    judge_known,
    new_entry,
    perform,
    read_step,
)
from oncegate.stores.postgres.wire import Rows, WireCommand
from oncegate.stores.shared.writes import in_turn

CONTENDED_TRIES_MAX: Final = 5
_BY_NUMBER: Final = WireCommand(statements.BY_NUMBER)
AS_USUAL: Final = WireCommand(statements.AS_USUAL)
_AT_ONCE: Final = WireCommand(statements.AT_ONCE)

Held = tuple[int, int, int]  # an entry, and the fence and the token under which it is held
Insert = Callable[[list[Reservation]], dict[bytes, Reserved]]
T = TypeVar("T")


class PostgresClaims(PostgresFusing, PostgresRecording):
    """Reserve, record, renew, progress, settle, attach, read."""

    _names: Names
    _in_transaction: bool
    _is_patient: bool

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _ticks(self) -> int | None:
        raise NotImplementedError

    def _run_writes(self, writes: Iterable[Statement]) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _undo(self) -> None:
        raise NotImplementedError

    def _finish(self, heads: list[WireCommand], writes: Iterable[Statement]) -> bool:
        raise NotImplementedError

    def _query_all(self, commands: list[WireCommand]) -> list[Rows]:
        raise NotImplementedError

    def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
        """Inserts all that are new with one statement, then judges the rest."""
        return self._decide(wanted, self._insert)

    def record(self, wanted: Sequence[Reservation], outcome: bytes) -> list[Reserved]:
        """The same, but what is new is settled with it; by then it is a replay to its equals."""
        return self._decide(wanted, lambda batch: self._insert_recorded(batch, outcome))

    def _decide(self, wanted: Sequence[Reservation], insert: Insert) -> list[Reserved]:
        if has_alternatives(wanted):
            chosen = by_known_keys(self, wanted)
            return told_apart(wanted, chosen, self._decide(chosen, insert))
        if len(wanted) == 1:
            return self._decide_one(wanted, insert)
        first: dict[bytes, int] = {}
        for place, item in enumerate(wanted):
            first.setdefault(item.key, place)
        # Sorted: two batches with the same keys must lock them in the same order.
        batch = [wanted[place] for _, place in sorted(first.items())]
        won = insert(batch)
        answers: list[Reserved | None] = [None] * len(wanted)
        for key, place in first.items():
            answers[place] = won.get(key)
        lost = [place for place, answer in enumerate(answers) if answer is None]
        if lost:
            self._judge_all(wanted, lost, answers, insert)
        return [answer for answer in answers if answer is not None]

    def _decide_one(self, wanted: Sequence[Reservation], insert: Insert) -> list[Reserved]:
        """The same for one, which handlers' own transactions have: nothing to sort."""
        answers: list[Reserved | None] = list(insert([*wanted]).values()) or [None]
        if answers[0] is None:
            self._judge_all(wanted, [0], answers, insert)
        return [answer for answer in answers if answer is not None]

    def _insert_one(self, item: Reservation) -> dict[bytes, Reserved]:
        wanted = {item.actor, item.surface, item.tenant}
        names = self._names.learn(wanted if item.declared is None else {*wanted, item.declared})
        rows = self._query(
            reserve_statements.RESERVE_ONE,
            (
                self._ticks(),
                Int8(item.received_at_ms),
                Int8(names[item.surface]),
                Int8(names[item.tenant]),
                item.fingerprint,
                text_value(item.label),
                Int8(item.token),
                item.key,
                Int8(item.lease_ms),
                Int8(0 if item.declared is None else names[item.declared]),
                item.body,
            ),
        )
        return {item.key: new_entry(item, *rows[0])} if rows else {}

    def _insert(self, batch: list[Reservation]) -> dict[bytes, Reserved]:
        if len(batch) == 1 and self._may_fuse(batch[0]):
            return self._insert_fused(batch[0])
        if len(batch) == 1 and batch[0].parked[0] is State.IN_FLIGHT and batch[0].content is None:
            return self._insert_one(batch[0])
        used = {name for i in batch for name in (i.actor, i.surface, i.tenant, i.declared)}
        names = self._names.learn(name for name in used if name is not None)
        marks = [i.content for i in batch]
        is_marked = any(marks)
        rows = self._query(
            reserve_statements.RESERVE_MARKED if is_marked else reserve_statements.RESERVE,
            (
                self._ticks(),
                *arrival_arrays(batch, names),
                bigint_array([i.lease_ms for i in batch]),
                bigint_array([i.token for i in batch]),
                bytea_array([i.body for i in batch]),
                integer_array([0 if i.declared is None else names[i.declared] for i in batch]),
                integer_array([names[i.actor] for i in batch]),
                integer_array([i.parked[0].value for i in batch]),
                text_array([i.parked[1] for i in batch]),
                *(mark_arrays(marks) if is_marked else ()),
            ),
        )
        return {
            batch[place - 1].key: new_entry(batch[place - 1], number, now) for place, number, now in rows
        }

    def _judge_all(
        self,
        wanted: Sequence[Reservation],
        places: list[int],
        answers: list[Reserved | None],
        insert: Insert,
    ) -> None:
        """Judges arrivals of known keys; again for those that another process moved on meanwhile."""
        for _ in range(JUDGE_ROUNDS_MAX):
            keys = sorted({wanted[place].key for place in places})
            rows = self._query(statements.KNOWN, (self._ticks(), bytea_array(keys)))
            known = {bytes(row[0]): row for row in rows}
            forgotten = [place for place in places if wanted[place].key not in known]
            for place in places:
                row = known.get(wanted[place].key)
                answers[place] = answer = None if row is None else self._judge(wanted[place], row)
                if answer is None or answer.decision.claims:
                    known.pop(wanted[place].key, None)  # what was read of it is no longer true
            _insert_forgotten(wanted, forgotten, answers, insert)
            places = [place for place in places if answers[place] is None]
            if not places:
                return
        raise StoreBusy("a key changes hands faster than it can be judged; try again")

    def _judge(self, item: Reservation, row: tuple[Any, ...]) -> Reserved | None:
        declared = self._names.maybe(item.declared)
        actor = self._names.learn({item.actor})[item.actor]
        return perform(judge_known(item, row, (actor, declared), self._ticks), self._execute)

    def _execute(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._query(sql, tuple(parameters))

    def serialise(self, names: Sequence[str]) -> None:
        """Takes a lock a name, in one order; the next statement sees what its last holder committed."""
        self._begin()
        for name in sorted(set(names)):
            self._query(statements.SERIALISE, (name,))

    def renew(self, claims: Sequence[Renewal]) -> list[bool]:
        """Extends leases; a claim that is asked for twice is extended once, and both callers get that."""
        batch = sorted({_held(claim): claim for claim in claims}.items())
        rows = self._query(
            statements.RENEW,
            (
                self._ticks(),
                bigint_array([claim.entry_id for _, claim in batch]),
                bigint_array([claim.fence for _, claim in batch]),
                bigint_array([claim.token for _, claim in batch]),
                bigint_array([claim.lease_ms for _, claim in batch]),
            ),
        )
        renewed = {batch[place - 1][0] for (place,) in rows}
        return [_held(claim) in renewed for claim in claims]

    def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
        """Records steps of claims that go on."""
        return self._contended(len(wanted), lambda: self._progress(wanted))

    def _progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
        self._begin()
        self._check_at_once([item.writes for item in wanted])
        done = [False] * len(wanted)
        for place in sorted(range(len(wanted)), key=lambda place: wanted[place].entry_id):
            done[place] = self._advance(wanted[place])
        return done

    def _check_at_once(self, writes: Sequence[tuple[Statement, ...]]) -> None:
        """Several events' statements: each one's constraints are its own, also those that are deferred."""
        if len(writes) > 1 and any(writes):
            self._query_all([_AT_ONCE])

    def _contended(self, size: int, work: Callable[[], T]) -> T:
        """Business writes of others may take the same rows in another order, and the server ends one side.

        A batch is then run apart, each event by itself; an event by itself is tried again, one at a time
        on the whole ledger, so that those who try again are not in each other's way.
        """
        if self._in_transaction:
            return work()
        for turn in range(CONTENDED_TRIES_MAX - 1):
            try:
                if turn:
                    self._take_turn()
                return work()
            except StoreBusy as error:
                if size > 1 or not is_deadlock(error.__cause__):
                    raise
                self._undo()
        self._take_turn()
        try:
            return work()
        except StoreBusy as error:
            if self._is_patient and is_deadlock(error.__cause__):
                raise rejected(error.__cause__) from error  # alone, and still: what it runs says so itself
            raise

    def _take_turn(self) -> None:
        self._begin()
        self._query(statements.TAKE_TURN, ())

    def _advance(self, item: StepRecords) -> bool:
        if not self._query(statements.HOLDS, _held(item)):
            return False
        self._write_steps(item.entry_id, item.steps)
        if item.probed is not None:
            self._note_probe(item, item.probed)
        self._run_writes(item.writes)
        return True

    def _note_probe(self, item: StepRecords, answer: str) -> None:
        actor = self._names.learn({item.actor})[item.actor]
        record = (item.entry_id, LogKind.PROBED.value, item.at_ms, actor, text_value(answer))
        self._query(statements.LOG, record)

    def settle(self, settlements: Sequence[Settlement], *, last: bool = False) -> list[bool]:
        """Ends claims: one statement; with business writes or as the last call, COMMIT goes with it."""
        if last and len(settlements) == 1 and self._ends_plainly(settlements[0]):
            return [self._finish([self._end_for_good(settlements[0])], ())]
        first: dict[Held, Settlement] = {}
        for item in settlements:
            first.setdefault(_held(item), item)
        batch = [first[claim] for claim in sorted(first)]
        done = self._contended(len(batch), lambda: self._settle(batch, last=last))
        return [_held(item) in done and first[_held(item)] is item for item in settlements]

    def _ends_plainly(self, item: Settlement) -> bool:
        """Whether one statement and COMMIT are all that is left of a handler's transaction."""
        more = item.writes or item.steps or item.clear_steps
        return self._in_transaction and not more and ends_for_good(item)

    def _settle(self, batch: list[Settlement], *, last: bool) -> set[Held]:
        if not (last and len(batch) == 1 and ends_for_good(batch[0])):
            self._unfuse()
        writes = any(item.writes for item in batch)
        if any(item.steps or item.clear_steps for item in batch):
            return self._settle_with_steps(batch)
        if last and self._in_transaction:
            return self._settle_and_commit(batch) or set()
        if writes and not self._in_transaction:
            return self._settle_and_commit(batch) or self._settle_one_by_one(batch)
        return self._settle_one_by_one(batch) if writes else self._settle_batch(batch)

    def _settle_and_commit(self, batch: list[Settlement]) -> set[Held] | None:
        """Sends claims, writes and COMMIT together; None if a fence was lost, and then all is undone."""
        writes = list(in_turn([item.writes for item in batch]))
        if len(batch) == 1 and ends_for_good(batch[0]):
            heads = [self._end_for_good(batch[0])]
        else:
            all_first = all(is_first_claim(item) for item in batch)
            sql = settle_statements.SETTLE_ALL_FIRST if all_first else settle_statements.SETTLE_ALL
            heads = [_BY_NUMBER, WireCommand(to_numbered(sql), (*self._arrays(batch), len(batch)))]
        if writes:
            heads += [AS_USUAL] if len(batch) == 1 else [AS_USUAL, _AT_ONCE]
        if self._finish(heads, writes):
            return {_held(item) for item in batch}
        return None

    def _end_for_good(self, item: Settlement) -> WireCommand:
        """Ends one claim, or divides by zero where its fence was lost."""
        fused = self._end_fused(item)
        if fused is not None:
            return fused
        is_first = is_first_claim(item)
        sql = settle_statements.END_FIRST_OR_FAIL if is_first else settle_statements.END_ONE_OR_FAIL
        return WireCommand(to_numbered(sql), self._values(item))

    def _settle_one_by_one(self, batch: list[Settlement]) -> set[Held]:
        self._begin()
        self._check_at_once([item.writes for item in batch])
        done: set[Held] = set()
        for item in batch:
            if self._settle_batch([item]):
                done.add(_held(item))
                self._run_writes(item.writes)
        return done

    def _settle_with_steps(self, batch: list[Settlement]) -> set[Held]:
        self._begin()
        done = self._settle_one_by_one(batch)
        for item in batch:
            if _held(item) in done and item.steps:
                self._write_steps(item.entry_id, item.steps)
        ended = [item.entry_id for item in batch if item.clear_steps and _held(item) in done]
        if ended:
            self._query(statements.CLEAR_STEPS, (bigint_array(ended),))
        return done

    def _settle_batch(self, batch: list[Settlement]) -> set[Held]:
        if len(batch) == 1 and ends_for_good(batch[0]):
            return (
                {_held(batch[0])}
                if self._query(settle_statements.END_ONE, self._values(batch[0]))
                else set()
            )
        command = WireCommand(to_numbered(settle_statements.SETTLE), self._arrays(batch))
        _, rows, _ = self._query_all([_BY_NUMBER, command, AS_USUAL])
        return {_held(batch[place - 1]) for (place,) in rows}

    def _values(self, item: Settlement) -> tuple[Any, ...]:
        return (
            item.state.value,
            Int8(item.at_ms),
            text_value(item.reason),
            Int8(item.entry_id),
            Int8(item.fence),
            Int8(item.token),
            item.outcome,
            Int8(self._names.learn({item.actor})[item.actor]),
        )

    def _arrays(self, batch: list[Settlement]) -> tuple[int | Packed | None, ...]:
        names = self._names.learn({item.actor for item in batch})
        return (
            self._ticks(),
            bigint_array([item.entry_id for item in batch]),
            bigint_array([item.fence for item in batch]),
            bigint_array([item.token for item in batch]),
            integer_array([item.state.value for item in batch]),
            bigint_array([item.at_ms for item in batch]),
            integer_array([names[item.actor] for item in batch]),
            text_array([item.reason for item in batch]),
            bytea_array([item.outcome for item in batch]),
            bigint_array([item.last_call_ticks for item in batch]),
            integer_array([item.attempts_given_back for item in batch]),
            bigint_array([item.busy_ms for item in batch]),
        )

    def withdraw(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Removes entries whose first claim came to nothing, in the order in which others lock them."""
        self._begin()
        gone = {claim for claim in sorted(set(claims)) if self._query(statements.WITHDRAW, claim[:3])}
        return [claim in gone for claim in claims]

    def attach(self, attachments: Sequence[Attachment]) -> list[bool]:
        """Adds outcomes that came after their commit; the first, where a claim is named twice."""
        first: dict[Held, Attachment] = {}
        for item in attachments:
            first.setdefault(_held(item), item)
        batch = list(first.values())
        rows = self._query(
            statements.ATTACH,
            (
                bigint_array([item.entry_id for item in batch]),
                bigint_array([item.fence for item in batch]),
                bigint_array([item.token for item in batch]),
                bytea_array([item.outcome for item in batch]),
            ),
        )
        done = {id(batch[place - 1]) for (place,) in rows}
        return [id(item) in done for item in attachments]

    def are_committed(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Looks for entries that these claims have committed."""
        found = set(self._query(statements.COMMITTED, (bigint_array([c.entry_id for c in claims]),)))
        return [_held(claim) in found for claim in claims]

    def was_committed(self, mark: str) -> bool:
        """Asks the server what became of a transaction."""
        return self._query(statements.FATE, (mark,)) == [("committed",)]

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads entries by key."""
        rows = self._query(statements.READ, (bytea_array(keys),))
        found = {entry.key: entry for entry in self._entries(rows)}
        return [found.get(key) for key in keys]

    def _write_steps(self, entry: int, steps: Iterable[StepRecord]) -> None:
        for step in steps:
            declared = self._names.maybe(step.declared)
            at = self._names.learn({step.downstream})[step.downstream]
            made = (at, step.result, step.resource, step.started_at_ms, declared, step.last_call_ticks)
            self._query(statements.STEP, (entry, step.name, step.state.value, *made, step.first_call_ticks))

    def _steps(self, entry: int) -> tuple[StepRecord, ...]:
        return tuple(map(read_step, self._query(statements.STEPS_NAMED, (entry,))))

    def _entries(self, rows: list[tuple[Any, ...]]) -> list[Entry]:
        texts = self._names.texts(number for row in rows for number in (row[2], row[3]))
        return [_entry(row, texts) for row in rows]


def _insert_forgotten(
    wanted: Sequence[Reservation], places: list[int], answers: list[Reserved | None], insert: Insert
) -> None:
    """A key that was removed between losing to it and reading it is new after all."""
    batch = {wanted[place].key: place for place in reversed(places)}
    if not batch:
        return
    won = insert([wanted[place] for _, place in sorted(batch.items())])
    for key, place in batch.items():
        answers[place] = won.get(key)


def _held(item: Settlement | StepRecords | Renewal | Attachment | ClaimId) -> Held:
    return (item.entry_id, item.fence, item.token)


def _entry(row: tuple[Any, ...], texts: dict[int, str]) -> Entry:
    number, key, tenant, surface, label, state, attempt, fence, token, fingerprint, *rest = row
    return Entry(
        number, bytes(key), texts[tenant], texts[surface], label, State(state), attempt, fence, token,
        bytes(fingerprint), *rest,
    )  # fmt: skip
