"""Claims on the simulated ledger, decided as every store decides: by `model.states.judge`, fence and state.

Mixed into the session. The broken-gate suite overrides single methods of it; each is therefore small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from oncegate.errors import StoreRejected
from oncegate.model.conflicts import LOGGED_MAX
from oncegate.model.states import Decision, Known, State, free_in_ms, judge, why_given_up
from oncegate.store import (
    CLAIM_KINDS,
    Attachment,
    ClaimId,
    ClaimNote,
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
from oncegate.store.recording import record_in_two_steps
from oncegate.stores.shared.writes import in_turn
from oncegate.testing.simulation.ledger import Ledger, Row, Tables

Acting = Renewal | StepRecords | Settlement | Attachment | ClaimId


class SimulatedClaims:
    """Reserve, record, renew, progress, settle, attach, read."""

    _ledger: Ledger
    _tables: Tables

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
        """Decides each reservation in order."""
        if has_alternatives(wanted):
            chosen = by_known_keys(self, wanted)
            return told_apart(wanted, chosen, self.reserve(chosen))
        return [self.reserve_one(item) for item in wanted]

    def record(self, wanted: Sequence[Reservation], outcome: bytes) -> Sequence[Reserved]:
        """Reserves, and settles what is new."""
        return record_in_two_steps(self, wanted, outcome)

    def reserve_one(self, item: Reservation) -> Reserved:
        """Inserts a new key, or judges a known one."""
        row = self.find(item)
        return self._insert(item) if row is None else self._judge(row, item)

    def find(self, item: Reservation) -> Row | None:
        """The entry of a key."""
        number = self._tables.ids.get(item.key)
        return None if number is None else self._tables.rows[number]

    def _insert(self, item: Reservation) -> Reserved:
        now, number = self.now_ticks(), self._next_number()
        self._put(_new_row(number, item, now))
        self._ledger.set(self._tables.ids, item.key, number)
        self._ledger.set(self._tables.payloads, number, item.body)
        state, reason = item.parked
        if reason is None:
            return Reserved(
                Decision.RUN, number, number, first_reserved_ticks=now,
                received_at_ms=item.received_at_ms, now_ticks=now, token=item.token, key=item.key,
            )  # fmt: skip
        self.log(number, LogKind(state.value), item.received_at_ms, item.actor, reason)
        decision = Decision.QUARANTINE if state is State.QUARANTINED else Decision.HOLD
        return Reserved(decision, number, state=state, reason=reason, now_ticks=now)

    def _next_number(self) -> int:
        return max(max(self._tables.rows, default=0), int(self._tables.meta["floor"])) + 1

    def _judge(self, row: Row, item: Reservation) -> Reserved:
        now, until = self.now_ticks(), row.lease_until_ticks or 0
        retry_at = 0 if item.at_once else row.retry_at_ticks or 0
        known = Known(
            row.state, row.fingerprint, row.attempt, until, retry_at, row.interruptions, item.deaths_max
        )
        decision = self.decide(known, item, now)
        if decision is Decision.CONFLICT:
            self._log_conflict(row.entry_id, item)
            return Reserved(decision, row.entry_id, now_ticks=now)
        if decision.claims:
            return self.take_over(row, item, decision, now)
        reason = row.reason
        if decision is Decision.HOLD and row.state in (State.IN_FLIGHT, State.RETRYABLE):
            reason = self._give_up(row, why_given_up(known), item)
        return Reserved(
            decision, row.entry_id, state=row.state, reason=reason,
            outcome=self._tables.outcomes.get(row.entry_id),
            retry_after_ms=free_in_ms(known, now), now_ticks=now,
            claimed_again=row.fence != row.entry_id,
        )  # fmt: skip

    def decide(self, known: Known, item: Reservation, now: int) -> Decision:
        """What an arrival of a known key gets."""
        return judge(known, item.fingerprint, now, item.attempts_max)

    def take_over(self, row: Row, item: Reservation, decision: Decision, now: int) -> Reserved:
        """Gives the key to the caller, under a new fence."""
        taken = replace(
            row, state=State.IN_FLIGHT, attempt=row.attempt + 1, fence=row.fence + 1,
            lease_until_ticks=now + item.lease_ms, token=item.token, settled_at_ms=None, reason=None,
            declared=item.declared if row.first_reserved is None else row.declared,
            retry_at_ticks=None, interruptions=row.interruptions + 1 if row.state is State.IN_FLIGHT else 0,
        )  # fmt: skip
        self._put(taken)
        note = str(ClaimNote(taken.attempt, taken.fence, row.first_reserved is None))
        self.log(row.entry_id, CLAIM_KINDS[decision], item.received_at_ms, item.actor, note)
        return Reserved(
            decision, row.entry_id, taken.fence, taken.attempt, row.state,
            self._tables.steps.get(row.entry_id, ()),
            first_reserved_ticks=row.first_reserved or 0, received_at_ms=row.received_at_ms,
            lapsed_at_ticks=row.lease_until_ticks or 0, now_ticks=now, token=item.token, key=item.key,
            declared=None if row.first_reserved is None else row.declared,
        )  # fmt: skip

    def _give_up(self, row: Row, reason: str, item: Reservation) -> str:
        held = {"state": State.HELD, "settled_at_ms": item.received_at_ms, "reason": reason, "token": None}
        self._put(replace(row, **held))
        self.log(row.entry_id, LogKind.HELD, item.received_at_ms, item.actor, reason)
        return reason

    def holder(self, item: Acting) -> Row | None:
        """The entry, if this claim still holds it."""
        row = self._tables.rows.get(item.entry_id)
        if row is None or row.state is not State.IN_FLIGHT:
            return None
        return row if self.is_held(row, item) else None

    def is_held(self, row: Row, item: Acting) -> bool:
        """Whether what stands on an entry is the claim that a request acts for."""
        return (row.fence, row.token) == (item.fence, item.token)

    def serialise(self, names: Sequence[str]) -> None:
        """Nothing to do: a unit is alone."""

    def renew(self, claims: Sequence[Renewal]) -> list[bool]:
        """Extends leases."""
        return [self._renew(claim) for claim in claims]

    def _renew(self, claim: Renewal) -> bool:
        row = self.holder(claim)
        if row is None:
            return False
        self._put(replace(row, lease_until_ticks=self.now_ticks() + claim.lease_ms))
        return True

    def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
        """Records steps of claims that go on."""
        return [self._advance(item) for item in wanted]

    def _advance(self, item: StepRecords) -> bool:
        if self.holder(item) is None:
            return False
        self.write_steps(item.entry_id, item.steps)
        if item.probed is not None:
            self.log(item.entry_id, LogKind.PROBED, item.at_ms, item.actor, item.probed)
        self._run_writes([item.writes])
        return True

    def settle(self, settlements: Sequence[Settlement], *, last: bool = False) -> list[bool]:
        """Ends claims, and runs the business writes of those that were ended."""
        answers = [self._end(item) for item in settlements]
        ended = zip(settlements, answers, strict=True)
        self._run_writes([item.writes for item, done in ended if done and item.writes])
        return answers

    def _end(self, item: Settlement) -> bool:
        row = self.holder(item)
        if row is None:
            return False
        self._put(self.settled_row(row, item))
        self.log(item.entry_id, LogKind(item.state.value), item.at_ms, item.actor, item.reason)
        if item.outcome is not None:
            self._ledger.set(self._tables.outcomes, item.entry_id, item.outcome)
        self.write_steps(item.entry_id, item.steps)
        if item.clear_steps:
            self._ledger.set(self._tables.steps, item.entry_id, None)
        return True

    def settled_row(self, row: Row, item: Settlement) -> Row:
        """The entry after its claim has ended."""
        final = item.state.is_final
        called = self.now_ticks() if item.last_call_ticks is None else item.last_call_ticks
        return replace(
            row, state=item.state, settled_at_ms=item.at_ms, reason=item.reason,
            token=row.token if final else None,
            attempt=row.attempt - item.attempts_given_back, lease_until_ticks=None if final else called,
            first_reserved=None if final else row.first_reserved,
            retry_at_ticks=self.retry_at(item),
        )  # fmt: skip

    def retry_at(self, item: Settlement) -> int | None:
        """When a failed attempt may be made again."""
        return None if item.busy_ms is None else self.now_ticks() + item.busy_ms

    def withdraw(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Removes entries whose first claim came to nothing."""
        return [self._withdraw(claim) for claim in claims]

    def _withdraw(self, claim: ClaimId) -> bool:
        row = self.holder(claim)
        if row is None or row.fence != row.entry_id or row.entry_id in self._tables.steps:
            return False
        self.remove(row)
        return True

    def remove(self, row: Row) -> None:
        """Removes an entry with all that belongs to it; its numbers are not given out again."""
        tables, put = self._tables, self._ledger.set
        put(tables.ids, row.key, None)
        for table in (tables.rows, tables.payloads, tables.outcomes, tables.steps):
            put(table, row.entry_id, None)
        put(tables.meta, "floor", max(tables.meta["floor"], row.entry_id, row.fence))

    def attach(self, attachments: Sequence[Attachment]) -> list[bool]:
        """Adds outcomes that came after their commit."""
        return [self._attach(item) for item in attachments]

    def _attach(self, item: Attachment) -> bool:
        row = self._tables.rows.get(item.entry_id)
        if row is None or row.state is not State.COMMITTED or not self.is_held(row, item):
            return False
        if item.entry_id in self._tables.outcomes:
            return False
        self._ledger.set(self._tables.outcomes, item.entry_id, item.outcome)
        return True

    def are_committed(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Looks for entries that these claims have committed."""
        rows = [self._tables.rows.get(claim.entry_id) for claim in claims]
        return [
            row is not None and row.state is State.COMMITTED and self.is_held(row, claim)
            for row, claim in zip(rows, claims, strict=True)
        ]

    def was_committed(self, mark: str) -> bool:
        """No user has a transaction of their own here."""
        return False

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads entries by key."""
        numbers = [self._tables.ids.get(key) for key in keys]
        return [None if number is None else self._tables.rows[number].entry() for number in numbers]

    def _put(self, row: Row) -> None:
        self._ledger.set(self._tables.rows, row.entry_id, row)

    def _log_conflict(self, entry: int, item: Reservation) -> None:
        records = self._tables.log.values()
        if sum(one.kind is LogKind.CONFLICT and one.entry_id == entry for one in records) < LOGGED_MAX:
            self.log(entry, LogKind.CONFLICT, item.received_at_ms, item.actor, None)

    def log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        """Appends one record to the log."""
        self._ledger.add_record(entry, kind, at_ms, actor, note)

    def write_steps(self, entry: int, steps: Iterable[StepRecord]) -> None:
        """Records steps beside those that are there."""
        known = {step.name: step for step in self._tables.steps.get(entry, ())}
        known.update({step.name: step for step in steps})
        if known:
            self._ledger.set(self._tables.steps, entry, tuple(known.values()))

    def _run_writes(self, batches: list[tuple[Statement, ...]]) -> None:
        for sql, parameters in in_turn(batches):
            self.execute(sql, parameters)

    def execute(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Runs a statement of a very small language.

        CREATE t, INSERT t, SELECT t, DROP-DRAFTS t; UPDATE t counts one more in a table of numbers, and
        INSERT-NUMBERED t adds a row with as many as are counted in `numbers`.
        """
        verb, _, table = sql.partition(" ")
        rows = self._tables.business.get(table)
        if verb == "CREATE" and rows is None:
            self._ledger.set(self._tables.business, table, ())
        elif verb == "INSERT" and rows is not None and _is_new(rows, parameters):
            self._ledger.set(self._tables.business, table, (*rows, tuple(parameters)))
        elif verb == "UPDATE" and rows is not None:
            self._ledger.set(self._tables.business, table, (*rows, (str(len(rows) + 1),)))
        elif verb == "INSERT-NUMBERED" and rows is not None and _is_new(rows, parameters):
            counted = len(self._tables.business["numbers"])
            self._ledger.set(self._tables.business, table, (*rows, (*parameters, counted)))
        elif verb == "DROP-DRAFTS" and rows is not None:
            kept = tuple(row for row in rows if not str(row[0]).startswith("draft"))
            self._ledger.set(self._tables.business, table, kept)
        elif verb == "SELECT" and rows is not None:
            return sorted(rows)
        else:
            raise StoreRejected(f"a business write failed and was undone: {sql[:60]}")
        return []


def _is_new(rows: tuple[tuple[Any, ...], ...], parameters: Sequence[Any]) -> bool:
    """A table's first column is its primary key, and takes text only."""
    return (
        len(parameters) > 0
        and isinstance(parameters[0], str)
        and all(row[0] != parameters[0] for row in rows)
    )


def _new_row(number: int, item: Reservation, now: int) -> Row:
    state, reason = item.parked
    parked = reason is not None
    return Row(
        number, item.key, item.tenant, item.surface, item.label,
        state, 0 if parked else 1, number, None if parked else item.token,
        item.fingerprint, item.received_at_ms, item.received_at_ms if parked else None,
        None if parked else now + item.lease_ms, reason, None, None if parked else now,
        0, item.declared,
    )  # fmt: skip
