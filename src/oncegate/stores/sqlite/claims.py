"""Claims on the embedded ledger: set-based statements inside the open unit.

Mixed into the session. Every state change names the fence it expects; a changed row count is the only
thing that says it happened. Must never read a key before inserting it: the insert itself decides.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from oncegate.errors import StoreRejected, StoreUnavailable, UsageError
from oncegate.model.conflicts import LOGGED_MAX
from oncegate.model.states import (
    Decision,
    Known,
    State,
    conflict_note,
    free_in_ms,
    judge,
    why_given_up,
)
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
    StepState,
)
from oncegate.store.alternatives import by_known_keys, has_alternatives, told_apart
from oncegate.store.recording import record_in_two_steps
from oncegate.stores.shared.writes import in_turn
from oncegate.stores.sqlite.bulk_settle import Sweep, sweep_of
from oncegate.stores.sqlite.files import is_the_stores
from oncegate.stores.sqlite.names import Names
from oncegate.stores.sqlite.new_keys import insert_all, insert_one, next_number
from oncegate.stores.sqlite.removing import BELONGINGS, RAISE_FLOOR

_RUN: Final = Decision.RUN
_COMMITTED: Final = State.COMMITTED
_KNOWN: Final = (
    "SELECT id, state, fingerprint, attempt, fence, coalesce(lease_until, 0), reason,"
    " first_reserved, received_at, body, declared, coalesce(retry_at, 0), coalesce(interruptions, 0),"
    " coalesce(tried_from, 0)"
    " FROM oncegate_entry LEFT JOIN oncegate_outcome ON entry = id WHERE key = ?"
)
_TAKE_OVER: Final = (
    "UPDATE oncegate_entry SET state = 1, attempt = attempt + 1, fence = fence + 1, lease_until = ?,"
    " declared = CASE WHEN first_reserved IS NULL THEN ? ELSE declared END,"
    " first_reserved = coalesce(first_reserved, ?), token = ?, settled_at = NULL, reason = NULL,"
    " retry_at = NULL, interruptions = CASE WHEN state = 1 THEN coalesce(interruptions, 0) + 1 END"
    " WHERE id = ? AND fence = ?"
)
_GIVE_UP: Final = (
    "UPDATE oncegate_entry SET state = 6, settled_at = ?, reason = ?, token = NULL"
    " WHERE id = ? AND fence = ?"
)
_SETTLE: Final = (
    "UPDATE oncegate_entry SET state = ?1, settled_at = ?2, reason = ?3,"
    " token = CASE WHEN ?1 IN (2, 3) THEN token END,"
    " attempt = attempt - ?4, lease_until = ?5,"
    " first_reserved = CASE WHEN ?6 THEN NULL ELSE first_reserved END, retry_at = ?10, record = ?11"
    " WHERE id = ?7 AND fence = ?8 AND token = ?9 AND state = 1"
)
# Its record is written next; SQLite numbers that after the newest there is.
_NEXT_POSITION: Final = "(SELECT coalesce(max(position), 0) + 1 FROM oncegate_log)"
_SETTLE_NEXT: Final = (
    "UPDATE oncegate_entry SET state = ?1, settled_at = ?2, reason = ?3,"
    " token = CASE WHEN ?1 IN (2, 3) THEN token END,"
    " attempt = attempt - ?4, lease_until = ?5,"
    " first_reserved = CASE WHEN ?6 THEN NULL ELSE first_reserved END, retry_at = ?10,"
    f" record = {_NEXT_POSITION} WHERE id = ?7 AND fence = ?8 AND token = ?9 AND state = 1"
)
_COMMIT_NEXT: Final = (
    "UPDATE oncegate_entry SET state = 2, settled_at = ?1, reason = NULL, lease_until = NULL,"
    f" first_reserved = NULL, record = {_NEXT_POSITION} WHERE id = ?2 AND fence = ?3 AND token = ?4"
    " AND state = 1"
)
_LOG_COMMITTED: Final = "INSERT INTO oncegate_log (entry, kind, at, actor) VALUES (?, 2, ?, ?)"
_OUTCOME: Final = "INSERT OR REPLACE INTO oncegate_outcome (entry, body) VALUES (?, ?)"
_LAST_POSITION: Final = "SELECT coalesce(max(position), 0) FROM oncegate_log"
_LOG: Final = "INSERT INTO oncegate_log (position, entry, kind, at, actor, note) VALUES (?, ?, ?, ?, ?, ?)"
_CONFLICTS: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM oncegate_log WHERE entry = ? AND kind <> 2 AND kind = 8 LIMIT ?)"
)
_STEP: Final = (
    "INSERT OR REPLACE INTO oncegate_step (entry, name, state, downstream, result, resource, started_at,"
    " declared, last_call, first_call) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_STEPS: Final = (
    "SELECT name, state, downstream, result, resource, started_at, declared, last_call, first_call"
    " FROM oncegate_step WHERE entry = ?"
)
_RENEW: Final = (
    "UPDATE oncegate_entry SET lease_until = ? WHERE id = ? AND fence = ? AND token = ? AND state = 1"
)
# A first claim has the number of its entry. What a claim has called is in its steps.
_WITHDRAW: Final = (
    "DELETE FROM oncegate_entry WHERE id = ? AND fence = ? AND token = ? AND state = 1 AND fence = id"
    " AND NOT EXISTS (SELECT 1 FROM oncegate_step WHERE entry = oncegate_entry.id)"
)
_ATTACH: Final = (
    "INSERT INTO oncegate_outcome (entry, body) SELECT id, ? FROM oncegate_entry"
    " WHERE id = ? AND fence = ? AND token = ? AND state = 2 ON CONFLICT (entry) DO NOTHING"
)
_ENDED: Final = "SELECT 1 FROM oncegate_entry WHERE id = ? AND fence = ? AND token = ? AND state = 2"
_HOLDS: Final = "SELECT 1 FROM oncegate_entry WHERE id = ? AND fence = ? AND token = ? AND state = 1"
_ENTRY_COLUMNS: Final = (
    "id, key, tenant, surface, label, state, attempt, fence, token, fingerprint, received_at,"
    " settled_at, lease_until, reason, retry_at"
)


class SqliteClaims:
    """Reserve, record, renew, progress, settle, attach, read."""

    _connection: sqlite3.Connection
    _cursor: sqlite3.Cursor  # for statements of ours that every event passes: making one takes a while
    _names: Names
    _highest: int = 0  # the newest number that was given out on this connection

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
        """Inserts all that are new in one sweep, then judges the rest one by one."""
        if len(wanted) == 1 and not wanted[0].also:
            (item,) = wanted
            now = self.now_ticks()
            number = insert_one(self._cursor, self._names, item, now)
            if not number:
                return [self._judge(item, now)]
            self._check_newer(number, number)
            return [self._new(number, item, now)]
        if has_alternatives(wanted):
            chosen = by_known_keys(self, wanted)
            return told_apart(wanted, chosen, self.reserve(chosen))
        now = self.now_ticks()
        first = next_number(self._connection)
        inserted = insert_all(self._connection, self._names, wanted, first, now)
        self._check_newer(first, max(inserted, default=self._highest))
        return [
            self._new(number, item, now) if number in inserted else self._judge(item, now)
            for number, item in enumerate(wanted, first)
        ]

    def _check_newer(self, first: int, last: int) -> None:
        """Numbers only grow: one that was there before says that the ledger went back (I23)."""
        if first <= self._highest:
            raise self._went_back(first)
        self._highest = last

    def _went_back(self, number: int) -> StoreUnavailable:
        raise NotImplementedError

    def record(self, wanted: Sequence[Reservation], outcome: bytes) -> Sequence[Reserved]:
        """Reserves, and settles what is new; both are in the one transaction of the unit."""
        return record_in_two_steps(self, wanted, outcome)

    def _new(self, number: int, item: Reservation, now: int) -> Reserved:
        if item.quarantine is None and item.hold is None:
            return Reserved(
                _RUN, number, number, first_reserved_ticks=now,
                received_at_ms=item.received_at_ms, now_ticks=now, token=item.token, key=item.key,
            )  # fmt: skip
        state, reason = item.parked
        self._log(number, LogKind(state.value), item.received_at_ms, item.actor, reason)
        decision = Decision.HOLD if state is State.HELD else Decision.QUARANTINE
        return Reserved(decision, number, state=state, reason=reason, now_ticks=now)

    def _judge(self, item: Reservation, now: int) -> Reserved:
        row = self._connection.execute(_KNOWN, (item.key,)).fetchone()
        entry, state, content, attempt, fence, until, reason, first_reserved, received, outcome, *rest = row
        was, retry_at, interruptions, tried_from = rest
        known = Known(
            State(state),
            content,
            attempt,
            until,
            0 if item.at_once else retry_at,
            interruptions,
            item.deaths_max,
        )
        decision = judge(known, item.fingerprint, now, item.attempts_max)
        if decision is Decision.CONFLICT:
            note = conflict_note(known.state)
            self._log(entry, LogKind.CONFLICT, item.received_at_ms, item.actor, note)
            return Reserved(decision, entry, now_ticks=now)
        if decision.claims:
            declared = self._number(item.declared)
            taken = (now + item.lease_ms, declared, now, item.token, entry, fence)
            self._connection.execute(_TAKE_OVER, taken)
            kind, claim = CLAIM_KINDS[decision], ClaimNote(attempt + 1, fence + 1, first_reserved is None)
            self._log(entry, kind, item.received_at_ms, item.actor, str(claim))
            return Reserved(
                decision, entry, fence + 1, attempt + 1, known.state, self._steps(entry),
                first_reserved_ticks=first_reserved or 0, received_at_ms=received,
                lapsed_at_ticks=until, now_ticks=now, never_run=first_reserved is None,
                declared=None if first_reserved is None else self._text(was),
                token=item.token, key=item.key, tried_from_ticks=tried_from,
            )  # fmt: skip
        if decision is Decision.HOLD and known.state in (State.IN_FLIGHT, State.RETRYABLE):
            reason = self._give_up(entry, fence, why_given_up(known), item)
        return Reserved(
            decision, entry, state=known.state, outcome=outcome, reason=reason,
            retry_after_ms=free_in_ms(known, now), received_at_ms=received, now_ticks=now,
            claimed_again=fence != entry,
        )  # fmt: skip

    def _give_up(self, entry: int, fence: int, reason: str, item: Reservation) -> str:
        self._connection.execute(_GIVE_UP, (item.received_at_ms, reason, entry, fence))
        self._log(entry, LogKind.HELD, item.received_at_ms, item.actor, reason)
        return reason

    def serialise(self, names: Sequence[str]) -> None:
        """Nothing to do: a unit that writes is alone."""

    def renew(self, claims: Sequence[Renewal]) -> list[bool]:
        """Extends leases."""
        now = self.now_ticks()
        return [self._changed(_RENEW, (now + c.lease_ms, c.entry_id, c.fence, c.token)) for c in claims]

    def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
        """Records steps of claims that go on."""
        return [self._advance(item) for item in wanted]

    def _advance(self, item: StepRecords) -> bool:
        holds = self._connection.execute(_HOLDS, (item.entry_id, item.fence, item.token)).fetchone()
        if holds is None:
            return False
        self._write_steps(item.entry_id, item.steps)
        if item.probed is not None:
            self._log(item.entry_id, LogKind.PROBED, item.at_ms, item.actor, item.probed)
        self._run_writes([item.writes])
        return True

    def settle(self, settlements: Sequence[Settlement], *, last: bool = False) -> list[bool]:
        """Ends claims; all at once where every fence is right, else one by one."""
        if last and not self._connection.in_transaction:
            raise UsageError("a statement ended the transaction; what it wrote is undone")
        if len(settlements) == 1:
            return [self._settle_one(settlements[0])]
        if self._settle_all(settlements):
            return [True] * len(settlements)
        return [self._settle_one(item) for item in settlements]

    def _settle_one(self, item: Settlement) -> bool:
        is_plain = item.state is _COMMITTED and item.reason is None and not item.attempts_given_back
        if not (self._commit(item) if is_plain else self._end(item)):
            return False
        if item.outcome is not None:
            self._cursor.execute(_OUTCOME, (item.entry_id, bytearray(item.outcome)))
        if item.steps or item.clear_steps:
            self._settle_steps(item)
        if item.writes:
            self._run_writes([item.writes])
        return True

    def _commit(self, item: Settlement) -> bool:
        execute = self._cursor.execute
        if execute(_COMMIT_NEXT, (item.at_ms, item.entry_id, item.fence, item.token)).rowcount != 1:
            return False
        execute(_LOG_COMMITTED, (item.entry_id, item.at_ms, self._names.number(item.actor)))
        return True

    def _end(self, item: Settlement) -> bool:
        if not self._changed(_SETTLE_NEXT, _settle_row(item, self.now_ticks())):
            return False
        self._log(item.entry_id, LogKind(item.state.value), item.at_ms, item.actor, item.reason)
        return True

    def _settle_all(self, settlements: Sequence[Settlement]) -> bool:
        """Tells whether every claim has been ended; nothing was changed otherwise."""
        (newest,) = self._connection.execute(_LAST_POSITION).fetchone()
        sweep = sweep_of(settlements)
        self._connection.execute("SAVEPOINT settle")
        if sweep is not None:
            changed = sweep.settle(self._connection, newest + 1)
        else:
            changed = self._settle_rows(settlements, newest + 1)
        complete = changed == len(settlements)
        if not complete:
            self._connection.execute("ROLLBACK TO settle")
        self._connection.execute("RELEASE settle")
        if complete:
            self._complete(settlements, sweep, newest + 1)
        return complete

    def _settle_rows(self, settlements: Sequence[Settlement], first: int) -> int:
        now = self.now_ticks()
        rows = [(*_settle_row(item, now), position) for position, item in enumerate(settlements, first)]
        return self._connection.executemany(_SETTLE, rows).rowcount

    def _complete(self, settled: Sequence[Settlement], sweep: Sweep | None, first: int) -> None:
        if sweep is not None:
            sweep.log(self._connection, first, self._names.number(settled[0].actor))
            sweep.keep_outcomes(self._connection, first)
        else:
            self._log_settled(settled, first)
        for item in settled:
            if item.steps or item.clear_steps:
                self._settle_steps(item)
        self._run_writes([item.writes for item in settled if item.writes])

    def _settle_steps(self, item: Settlement) -> None:
        if item.steps:
            self._write_steps(item.entry_id, item.steps)
        if item.clear_steps:
            self._connection.execute("DELETE FROM oncegate_step WHERE entry = ?", (item.entry_id,))

    def _log_settled(self, settled: Sequence[Settlement], first: int) -> None:
        number = self._names.number
        records = [
            (position, i.entry_id, i.state.value, i.at_ms, number(i.actor), i.reason)
            for position, i in enumerate(settled, first)
        ]
        self._connection.executemany(_LOG, records)
        outcomes = [(i.entry_id, i.outcome) for i in settled if i.outcome is not None]
        if outcomes:
            self._connection.executemany(_OUTCOME, outcomes)

    def withdraw(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Removes entries whose first claim came to nothing."""
        return [self._withdraw(claim) for claim in claims]

    def _withdraw(self, claim: ClaimId) -> bool:
        if not self._changed(_WITHDRAW, claim[:3]):
            return False
        for sql in BELONGINGS:
            self._connection.execute(sql, (claim.entry_id,))
        self._connection.execute(RAISE_FLOOR, (claim.entry_id,))
        return True

    def attach(self, attachments: Sequence[Attachment]) -> list[bool]:
        """Adds outcomes that came after their commit."""
        return [self._changed(_ATTACH, (i.outcome, i.entry_id, i.fence, i.token)) for i in attachments]

    def are_committed(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Looks for entries that these claims have committed."""
        return [self._connection.execute(_ENDED, claim[:3]).fetchone() is not None for claim in claims]

    def was_committed(self, mark: str) -> bool:
        """SQLite cannot tell: its transactions have no names."""
        return False

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads entries by key."""
        sql = f"SELECT {_ENTRY_COLUMNS} FROM oncegate_entry WHERE key = ?"
        rows = [self._connection.execute(sql, (key,)).fetchone() for key in keys]
        return [None if row is None else self._entry(row) for row in rows]

    def _run_writes(self, batches: Sequence[tuple[Statement, ...]]) -> None:
        """Runs users' statements; neighbours with the same text go to SQLite in one sweep."""
        try:
            if len(batches) == 1:
                for sql, parameters in batches[0]:
                    self._cursor.executemany(sql, (parameters,))
                return
            for sql, group in groupby(in_turn(batches), key=lambda statement: statement[0]):
                self._connection.executemany(sql, [parameters for _, parameters in group])
        except Exception as error:
            if is_the_stores(error):
                raise
            # Whatever else a user's statement or parameter does, it is theirs alone.
            raise StoreRejected(f"a business write failed and was undone: {error}") from error

    def _changed(self, sql: str, parameters: tuple[Any, ...]) -> bool:
        return self._connection.execute(sql, parameters).rowcount == 1

    def _log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        if kind is LogKind.CONFLICT:
            ((logged,),) = self._connection.execute(_CONFLICTS, (entry, LOGGED_MAX)).fetchall()
            if logged >= LOGGED_MAX:
                return
        row = (None, entry, kind.value, at_ms, self._names.number(actor), note)
        self._connection.execute(_LOG, row)

    def _write_steps(self, entry: int, steps: Iterable[StepRecord]) -> None:
        number = self._names.number
        self._connection.executemany(
            _STEP,
            [
                (
                    entry, s.name, s.state.value, number(s.downstream), s.result, s.resource,
                    s.started_at_ms, self._number(s.declared), s.last_call_ticks, s.first_call_ticks,
                )
                for s in steps
            ],
        )  # fmt: skip

    def _number(self, text: str | None) -> int | None:
        return None if text is None else self._names.number(text)

    def _text(self, number: int | None) -> str | None:
        return self._names.text(number) if number else None

    def _steps(self, entry: int) -> tuple[StepRecord, ...]:
        return tuple(self._step(row) for row in self._connection.execute(_STEPS, (entry,)))

    def _step(self, row: tuple[Any, ...]) -> StepRecord:
        name, state, downstream, result, resource, started, declared, *called = row
        where = self._names.text(downstream)
        return StepRecord(
            name, StepState(state), where, result, resource, started, self._text(declared), *called
        )

    def _outcome(self, entry: int) -> bytes | None:
        row = self._connection.execute(
            "SELECT body FROM oncegate_outcome WHERE entry = ?", (entry,)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        number, key, tenant, surface, label, state, *rest = row
        text = self._names.text
        return Entry(number, key, text(tenant), text(surface), label, State(state), *rest)


def _settle_row(item: Settlement, now: int) -> tuple[Any, ...]:
    final = item.state.is_final
    called = now if item.last_call_ticks is None else item.last_call_ticks
    state, lease = item.state.value, None if final else called
    head = (state, item.at_ms, item.reason, item.attempts_given_back)
    retry_at = None if item.busy_ms is None else now + item.busy_ms
    return (*head, lease, final, item.entry_id, item.fence, item.token, retry_at)
