"""Work on the ledger as a row of statements: each is yielded, and its rows are sent back in.

Who sends them decides how: the ledger's own session, or a user's blocking or async connection. That is why
all three share one copy of the logic. Must never begin, commit or undo anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from oncegate.clock import SystemClock
from oncegate.errors import StoreBusy, UsageError
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
    ClaimSession,
    Reservation,
    Reserved,
    Settlement,
    Statement,
    StepRecord,
    StepState,
)
from oncegate.store.alternatives import told_apart, under_known_key
from oncegate.store.incarnations import IncarnationChange
from oncegate.stores.postgres import join_statements, statements
from oncegate.stores.postgres.failures import rejected
from oncegate.stores.shared.unused_names import NAMES_CACHED_MAX, NUMBERS_KEPT_MS

T = TypeVar("T")
Rows: TypeAlias = list[tuple[Any, ...]]
Script: TypeAlias = Generator[Statement, Rows, T]
_CLOCK: Final = SystemClock()
JUDGE_ROUNDS_MAX: Final = 20  # each lost round means that somebody else moved the key on
LOCKED_WAIT_MS: Final = 1_000  # when to come again for an entry that an open transaction holds
_NOT_THERE: Final = frozenset({"42P01", "3F000"})  # no such table, no such schema


def perform(script: Script[T], execute: Callable[[str, Sequence[Any]], Rows]) -> T:
    """Runs a script on a blocking connection."""
    try:
        statement = next(script)
        while True:
            try:
                rows = execute(*statement)
            except Exception as error:  # noqa: BLE001  the script decides what an error means
                statement = script.throw(error)
            else:
                statement = script.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def submit_async(script: Script[T], execute: Callable[[str, Sequence[Any]], Awaitable[Rows]]) -> T:
    """Runs a script on an async connection."""
    try:
        statement = next(script)
        while True:
            try:
                rows = await execute(*statement)
            except Exception as error:  # noqa: BLE001  the script decides what an error means
                statement = script.throw(error)
            else:
                statement = script.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


class Facts:
    """What must be known of a ledger before its statements can be sent over a user's connection."""

    def __init__(self, ticks: Callable[[], int] | None) -> None:
        self.ledger_id = ""
        self.numbers: dict[str, int] = {}
        self._ticks = ticks
        self._kept_since_ms = 0

    def knows(self, names: Sequence[str]) -> bool:
        """Whether the ledger and all these names are known."""
        is_recent = 0 <= _CLOCK.ticks_ms() - self._kept_since_ms < NUMBERS_KEPT_MS
        return is_recent and bool(self.ledger_id) and all(name in self.numbers for name in names)

    def keep(self, ledger_id: str, numbers: Mapping[str, int]) -> None:
        """Remembers what was read of the ledger; numbers of names never change."""
        now_ms = _CLOCK.ticks_ms()
        is_recent = 0 <= now_ms - self._kept_since_ms < NUMBERS_KEPT_MS
        if not is_recent or len(self.numbers) + len(numbers) > NAMES_CACHED_MAX:
            self.numbers, self._kept_since_ms = {}, now_ms
        self.numbers = {**self.numbers, **numbers}
        self.ledger_id = ledger_id

    def forget(self) -> None:
        """Drops all of it: the ledger is another one."""
        self.ledger_id, self.numbers = "", {}

    def misses(self, session: ClaimSession) -> bool:
        """Knows of nothing that a ledger could lose."""
        return False

    def restore(self, session: ClaimSession, change: IncarnationChange) -> None:
        """Has nothing to write down."""

    def number(self, name: str) -> int:
        """The number of a name that was made known before."""
        try:
            return self.numbers[name]
        except KeyError:
            raise StoreBusy(f"{name!r} was forgotten between two steps; try again") from None

    def maybe(self, name: str | None) -> int | None:
        """The number of a name that may be absent."""
        return None if name is None else self.number(name)

    def now(self) -> int | None:
        """The time to send along; None lets the server's clock decide."""
        return None if self._ticks is None else self._ticks()


def ends_for_good(item: Settlement) -> bool:
    """Whether a claim ends as nearly all do: in a final state, with its outcome."""
    return _is_final(item) and item.outcome is not None


def is_first_claim(item: Settlement) -> bool:
    """Whether the entry was never claimed before: then nothing can have been kept of it."""
    return item.fence == item.entry_id


def _is_final(item: Settlement) -> bool:
    return item.state in (State.COMMITTED, State.FAILED) and not item.attempts_given_back


def settle(facts: Facts, item: Settlement) -> Script[str | None]:
    """Ends a claim and runs its business writes; names the transaction, None if the fence was lost."""
    end = _end(facts, item) if _is_final(item) else _settlement(facts, item)
    ((same, done, transaction),) = yield from _on_ledger(*end)
    _check_same(same)
    if not done:
        return None
    if item.clear_steps:
        yield join_statements.CLEAR_STEPS, (item.entry_id,)
    for statement in item.writes:
        yield from _business_write(statement)
    return str(transaction)


def _end(facts: Facts, item: Settlement) -> Statement:
    if item.outcome is None:
        sql = join_statements.END_BARE
    else:
        sql = join_statements.END_FIRST if is_first_claim(item) else join_statements.END
    return sql, (
        facts.ledger_id,
        item.state.value,
        item.at_ms,
        _text(item.reason),
        item.entry_id,
        item.fence,
        item.token,
        *(() if item.outcome is None else (item.outcome,)),
        facts.number(item.actor),
    )


def _settlement(facts: Facts, item: Settlement) -> Statement:
    return join_statements.SETTLE, (
        facts.ledger_id,
        facts.now(),
        item.entry_id,
        item.fence,
        item.token,
        item.state.value,
        item.at_ms,
        facts.number(item.actor),
        _text(item.reason),
        item.outcome,
        item.last_call_ticks,
        item.attempts_given_back,
        item.busy_ms,
    )


def _business_write(statement: Statement) -> Script[None]:
    try:
        yield statement
    except Exception as error:  # whatever a user's statement or parameter does, it is theirs alone
        raise rejected(error) from error


def reserve(facts: Facts, item: Reservation) -> Script[Reserved]:
    """Inserts the key if it is new, else judges what is known of it, or of one of its other keys."""
    if item.also:
        chosen = yield from _by_known_key(facts, item)
        judged = yield from reserve(facts, chosen)
        return told_apart([item], [chosen], [judged])[0]
    for _ in range(JUDGE_ROUNDS_MAX):
        fresh = yield from _insert(facts, item)
        if fresh is not None:
            return fresh
        rows = yield join_statements.KNOWN, (facts.now(), item.key)
        if rows:
            numbers = facts.number(item.actor), facts.maybe(item.declared)
            answer = yield from judge_known(item, rows[0], numbers, facts.now)
            if answer is not None:
                return answer
    raise StoreBusy("a key changes hands faster than it can be judged; try again")


def _by_known_key(facts: Facts, item: Reservation) -> Script[Reservation]:
    """The reservation under the key that it is to be judged by, see `store.alternatives`."""
    keys = sorted({item.key, *item.also})
    for key in keys:
        yield statements.SERIALISE, (key.hex(),)
    known = set()
    for key in keys:
        if (yield join_statements.KNOWN, (facts.now(), key)):
            known.add(key)
    return under_known_key(item, known)


def _insert(facts: Facts, item: Reservation) -> Script[Reserved | None]:
    mark = item.content
    ((same, number, now),) = yield from _on_ledger(
        join_statements.RESERVE if mark is None else join_statements.RESERVE_MARKED,
        (
            facts.ledger_id,
            facts.now(),
            item.key,
            facts.number(item.surface),
            facts.number(item.tenant),
            item.fingerprint,
            _text(item.label),
            item.received_at_ms,
            item.lease_ms,
            item.token,
            item.body,
            facts.maybe(item.declared),
            facts.number(item.actor),
            item.parked[0].value,
            _text(item.parked[1]),
            *(() if mark is None else (mark.hash, _text(mark.target), _text(mark.compensation))),
        ),
    )
    _check_same(same)
    return None if number is None else new_entry(item, number, now)


def new_entry(item: Reservation, number: int, now: int) -> Reserved:
    """The answer to a reservation whose key was not known."""
    if item.quarantine is not None:
        reason, state = item.quarantine, State.QUARANTINED
        return Reserved(Decision.QUARANTINE, number, state=state, reason=reason, now_ticks=now)
    if item.hold is not None:
        return Reserved(Decision.HOLD, number, state=State.HELD, reason=item.hold, now_ticks=now)
    return Reserved(
        Decision.RUN, number, number, first_reserved_ticks=now, received_at_ms=item.received_at_ms,
        now_ticks=now, token=item.token, key=item.key,
    )  # fmt: skip


def judge_known(
    item: Reservation,
    row: tuple[Any, ...],
    numbers: tuple[int, int | None],
    ticks: Callable[[], int | None],
) -> Script[Reserved | None]:
    """Answers an arrival of a known key; None if another process moved the key on meanwhile.

    `numbers` are those of the reservation's actor and of its declaration.
    """
    _, entry, state, content, attempt, fence, until, reason, first_reserved, received, outcome, *rest = row
    (now, was, retry_at, interruptions, tried_from), (actor, declared) = rest, numbers
    known = Known(
        State(state),
        bytes(content),
        attempt,
        until,
        0 if item.at_once else retry_at,
        interruptions,
        item.deaths_max,
    )
    decision = judge(known, item.fingerprint, now, item.attempts_max)
    at_ms = item.received_at_ms
    if decision is Decision.CONFLICT:
        note = conflict_note(known.state)
        yield statements.LOG_CONFLICT, (entry, at_ms, actor, note)
        return Reserved(decision, entry, now_ticks=now)
    if decision.claims:
        kind, first = CLAIM_KINDS[decision].value, "first " if first_reserved < 0 else ""
        taken = yield (
            statements.TAKE_OVER,
            (ticks(), entry, fence, state, item.token, item.lease_ms, declared, kind, at_ms, actor, first,
             entry, fence, state),
        )  # fmt: skip
        if not taken:
            return None
        if taken[0][0] is None:
            return Reserved(
                Decision.BUSY, entry, state=known.state, retry_after_ms=LOCKED_WAIT_MS,
                received_at_ms=received, now_ticks=now,
            )  # fmt: skip
        steps = yield statements.STEPS_NAMED, (entry,)
        return Reserved(
            decision, entry, taken[0][1], taken[0][0], known.state, tuple(map(read_step, steps)),
            first_reserved_ticks=max(0, first_reserved), received_at_ms=received, lapsed_at_ticks=until,
            now_ticks=taken[0][2], never_run=first_reserved < 0, token=item.token, key=item.key,
            declared=None if first_reserved < 0 else was, tried_from_ticks=tried_from,
        )  # fmt: skip
    if decision is Decision.HOLD and known.state in (State.IN_FLIGHT, State.RETRYABLE):
        reason = why_given_up(known)
        yield statements.GIVE_UP, (at_ms, reason, entry, fence, at_ms, actor, reason)
    return Reserved(
        decision, entry, state=known.state, outcome=_bytes(outcome), reason=reason,
        retry_after_ms=free_in_ms(known, now), received_at_ms=received, now_ticks=now,
        claimed_again=fence != entry,
    )  # fmt: skip


def _on_ledger(sql: str, parameters: Sequence[Any]) -> Script[Rows]:
    try:
        return (yield sql, parameters)
    except Exception as error:
        if _sqlstate(error) in _NOT_THERE:
            raise _elsewhere() from error
        raise


def _check_same(same: bool) -> None:
    if not same:
        raise _elsewhere()


def _elsewhere() -> UsageError:
    return UsageError(
        "tx= is open on another database than the ledger's (or its search_path leads elsewhere); only one "
        "database can commit both"
    )


def _sqlstate(error: BaseException) -> str | None:
    """PostgreSQL's code for an error, however the user's library has wrapped it."""
    for found in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
        if code:
            return str(code)
    return None


def read_step(row: tuple[Any, ...]) -> StepRecord:
    """A step as `STEPS_NAMED` reads it."""
    name, state, downstream, result, *rest = row
    return StepRecord(name, StepState(state), downstream, _bytes(result), *rest)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _text(value: str | None) -> str | None:
    """U+0000 is not text in PostgreSQL and is made visible."""
    return None if value is None else value.replace("\0", "\u2400")
