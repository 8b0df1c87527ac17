"""One connection to a PostgreSQL ledger: units, statements, what a lost connection leaves open.

A unit that is announced as a single call lets each claim statement commit by itself, in one round trip;
every other unit is a transaction. Must never report a statement as failed that may have committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import errors as postgres
from psycopg.pq import TransactionStatus

from oncegate.clock import SystemClock
from oncegate.commit.greenlet_bridge import run_in_thread
from oncegate.errors import StoreError, StoreRejected, StoreUnknown
from oncegate.store import Statement
from oncegate.store.incarnations import Incarnations, Sight
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.browsing import PostgresBrowsing
from oncegate.stores.postgres.census import PostgresCensus
from oncegate.stores.postgres.contents import PostgresContents
from oncegate.stores.postgres.failures import is_answer, is_lost, rejected, translate, users_failure
from oncegate.stores.postgres.feed import PostgresFeed
from oncegate.stores.postgres.in_doubt_commits import Doubts, backend_of
from oncegate.stores.postgres.incarnation import statement_for
from oncegate.stores.postgres.lane_census import PostgresLaneCensus
from oncegate.stores.postgres.lane_desk import PostgresLaneDesk
from oncegate.stores.postgres.lanes import LostRace
from oncegate.stores.postgres.names import Names
from oncegate.stores.postgres.notices import PostgresNotices
from oncegate.stores.postgres.people import PostgresPeople
from oncegate.stores.postgres.placeholders import (
    names_to_numbers,
    to_numbered,
)
from oncegate.stores.postgres.positions import PostgresPositions
from oncegate.stores.postgres.pruning import PostgresPruning
from oncegate.stores.postgres.registry import PostgresRegistry
from oncegate.stores.postgres.resources import PostgresResources
from oncegate.stores.postgres.seen import PostgresSeen
from oncegate.stores.postgres.tallies import PostgresTallies
from oncegate.stores.postgres.tidying import tidying_of
from oncegate.stores.postgres.traces import PostgresTraces
from oncegate.stores.postgres.user_statements import Connection, PostgresUserStatements, user_command
from oncegate.stores.postgres.wire import BEGIN, COMMIT, ROLLBACK, Rows, Wire, WireCommand

KEPT_EVERY_MS: Final = 1_000
_CLOCK: Final = SystemClock()  # only to count seconds between two writes of a connection
_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_KEEP_TIME = WireCommand(statements.KEEP_TIME)
_MAY_KEEP_TIME = WireCommand(statements.MAY_KEEP_TIME)
_BEGIN_LOOK = WireCommand("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_SCHEMA = WireCommand("SELECT value::int FROM oncegate_meta WHERE name = 'schema_version'")
# A batch waits so long for what others' transactions hold; who waits alone has the server's own limit.
LOCK_WAIT_MS: Final = 100
_HASTY, _PATIENT = WireCommand(f"SET lock_timeout = {LOCK_WAIT_MS}"), WireCommand("RESET lock_timeout")
_SAVEPOINT, _RELEASE = WireCommand("SAVEPOINT race"), WireCommand("RELEASE SAVEPOINT race")
Ticks = Callable[[], int]


class PostgresSession(
    PostgresUserStatements,
    PostgresCensus,
    PostgresBrowsing,
    PostgresPruning,
    PostgresRegistry,
    PostgresPeople,
    PostgresFeed,
    PostgresContents,
    PostgresLaneDesk,
    PostgresLaneCensus,
    PostgresResources,
    PostgresTallies,
    PostgresSeen,
    PostgresPositions,
    PostgresTraces,
    PostgresNotices,
):
    """A session that owns its connection.

    With `reopen` it survives a restart of the server: a connection found dead before anything was sent is
    replaced. With `doubts` it makes sure that a commit in doubt has ended before it is read back.
    """

    def __init__(
        self,
        connection: Connection,
        ticks: Ticks | None,
        *,
        reopen: Callable[[], Connection] | None = None,
        doubts: Doubts | None = None,
        incarnations: Incarnations | None = None,
    ) -> None:
        self._given_ticks = ticks
        self._names = Names(self._query, self._write_apart)
        self._in_transaction = False
        self._begin_is_due = False
        self._is_patient = True
        self._is_untouched = self._is_planned_as_usual = False
        self._reopen = reopen
        self._keeps_time_at_ms = 0
        self._doubts = doubts
        self._incarnations = incarnations
        self._generation = 0 if incarnations is None else incarnations.generation
        self._use(connection)

    def _use(self, connection: Connection) -> None:
        self._connection = connection
        self._wire = Wire(connection)
        self._tidying, self._ran_users = tidying_of(connection), False
        self._waits_long = True
        self._backend = None if self._doubts is None else backend_of(connection)

    def _ticks(self) -> int | None:
        return None if self._given_ticks is None else self._given_ticks()

    def now_ticks(self) -> int:
        """The ledger's own time: it goes on with the server's clock, but does not follow its steps."""
        ((now,),) = self._query(statements.NOW, (self._ticks(),))
        return int(now)

    def _query(self, sql: str, parameters: tuple[Any, ...] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if isinstance(parameters, Mapping):
            sql, names = names_to_numbers(sql)
            parameters = tuple(parameters[name] for name in names)
        return self._query_all([WireCommand(to_numbered(sql), parameters)])[-1]

    def _query_all(self, commands: list[WireCommand]) -> list[Rows]:
        try:
            return self._exchange(commands)
        except psycopg.Error as error:
            raise self._failed(error, committing=not self._in_transaction) from error

    def _guard(self) -> list[WireCommand]:
        """Goes ahead of our own statements where users' have run: see `tidying`."""
        is_open = self._connection.info.transaction_status is TransactionStatus.INTRANS
        return [self._tidying.before] if self._ran_users and is_open else []

    def _after(self) -> Sequence[WireCommand]:
        """Takes away what users' statements have left."""
        if not self._ran_users:
            return ()
        return self._tidying.after if self._is_patient else (*self._tidying.after, _HASTY)

    def _exchange(self, commands: list[WireCommand], then: Sequence[WireCommand] = ()) -> list[Rows]:
        """Sends statements in one go, the begin of the transaction with the first of them."""
        if self._is_untouched:
            self._is_untouched = False
            self._revive()
            self._limit_waits()
            self._keep_time()
        if not self._begin_is_due:
            return self._wire.send(commands, then)
        self._begin_is_due = False
        return self._wire.send([BEGIN, *commands], then)[1:]

    def _racing(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Runs a statement that divides by zero where it lost a race; then nothing was changed."""
        nested = self._in_transaction
        statement = WireCommand(to_numbered(sql), parameters)
        try:
            return self._exchange([_SAVEPOINT, statement, _RELEASE] if nested else [statement])[int(nested)]
        except postgres.DivisionByZero:
            if nested:
                self._query("ROLLBACK TO SAVEPOINT race", ())
            raise LostRace from None
        except psycopg.Error as error:
            raise self._failed(error, committing=not nested) from error

    def _write_apart(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Commits at once what an open transaction needs but must not keep others waiting for."""
        if not self._in_transaction or self._reopen is None:
            return self._query(sql, parameters)
        try:
            with run_in_thread(self._reopen) as connection:
                connection.execute(sql, parameters)
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        return []

    def _failed(self, error: psycopg.Error, *, committing: bool) -> StoreError:
        failure = translate(error, committing=committing)
        if isinstance(failure, StoreUnknown) and self._doubts is not None and self._backend is not None:
            self._doubts.add(self._backend)
        return failure

    @contextmanager
    def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> Iterator[None]:
        """One transaction; a single call may be a statement that commits by itself."""
        self._is_untouched, self._is_planned_as_usual, self._is_patient = True, False, patient
        self._names.expire(_CLOCK.ticks_ms())
        if not single:
            self._begin()
        try:
            yield
        except BaseException:
            self._undo()
            raise
        self._commit()

    def _revive(self) -> None:
        """Replaces a connection that the server has closed meanwhile; nothing was sent on it yet."""
        if self._reopen is None:
            return
        if not self.is_connected() or (
            self._incarnations is not None and self._generation != self._incarnations.generation
        ):
            self._replace(self._reopen)

    def _is_outdated(self) -> bool:
        """Whether another session has found that the ledger is another one."""
        return self._incarnations is not None and self._generation != self._incarnations.generation

    def _replace(self, reopen: Callable[[], Connection]) -> None:
        """Goes on over a new connection, which is looked at before anything is asked of it."""
        self._connection.close()
        self._names.forget()
        self._use(run_in_thread(reopen))
        if self._incarnations is not None:
            self._generation = self._incarnations.generation

    def _limit_waits(self) -> None:
        """Tells the server how long others' locks are waited for, when that has changed."""
        if self._waits_long is self._is_patient:
            return
        try:
            self._wire.send([_PATIENT if self._is_patient else _HASTY])
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        self._waits_long = self._is_patient

    def _keep_time(self) -> None:
        """Lets the ledger's time go on; nothing else depends on whether this was committed."""
        now_ms = _CLOCK.ticks_ms()
        if self._given_ticks is not None or self._reopen is None or now_ms < self._keeps_time_at_ms:
            return
        self._keeps_time_at_ms = now_ms + KEPT_EVERY_MS
        seen = None if self._incarnations is None else self._incarnations.identity
        try:
            if seen is None:
                self._wire.send([_KEEP_TIME])
                return
            _, ((identity, position),) = self._wire.send([_KEEP_TIME, WireCommand(statement_for(seen))])
        except postgres.InsufficientPrivilege:  # taken away since: the new connection goes by less
            self._replace(self._reopen)
            return
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        if not self._is_known(Sight(identity, position)):
            self._replace(self._reopen)

    def _is_known(self, sight: Sight) -> bool:
        return self._incarnations is None or self._incarnations.is_same(sight)

    def _begin(self) -> None:
        """From here on all is one transaction; the first statement begins it on the server."""
        if not self._in_transaction:
            self._in_transaction = self._begin_is_due = True

    def _commit(self) -> None:
        if not self._in_transaction:
            return
        self._unfuse()
        self._in_transaction = False
        if self._begin_is_due:  # nothing was sent
            self._begin_is_due = False
            return
        try:
            self._wire.send([*self._guard(), COMMIT], self._after())
        except psycopg.Error as error:
            if is_answer(error):  # a user's constraint or trigger that is checked at the end
                self._undo()
                failed = rejected(error) if self._is_patient else users_failure(error, patient=False)
                raise failed from error
            self._names.forget()
            raise self._failed(error, committing=True) from error
        self._ran_users = False
        if self._wire.last_status != b"COMMIT":
            raise StoreRejected("the server undid the transaction instead of committing it")

    def _undo(self) -> None:
        self._names.forget()
        self._in_transaction = self._begin_is_due = False
        self._fused = None
        if self._connection.closed:
            return
        status = self._connection.info.transaction_status
        try:
            if status in _OPEN:  # not by the driver's rollback, which forgets every prepared statement
                self._wire.send([ROLLBACK], self._after())
            elif status is not TransactionStatus.IDLE:
                self._connection.close()
            elif self._ran_users:  # their transaction has ended by itself
                self._wire.send([], self._after())
            self._ran_users = False
        except psycopg.Error:
            self._connection.close()

    def _finish(self, heads: list[WireCommand], writes: Iterable[Statement]) -> bool:
        """Sends the rest of a transaction and its COMMIT in one go; False if `heads` found a lost fence.

        Whatever fails before COMMIT is certainly undone; only a lost connection leaves it open.
        """
        self._begin()
        commands = [*self._guard(), *heads]
        ours = len(commands) + self._begin_is_due
        try:
            users = [user_command(*write) for write in writes]
            if users:
                self._ran_users = True
                commands += [*users, self._tidying.before]
            self._exchange([*commands, COMMIT], self._after())
            self._in_transaction = self._ran_users = False
        except StoreError:
            raise
        except psycopg.Error as error:
            if self._is_in_doubt(error):
                self._in_transaction = False
                raise self._failed(psycopg.OperationalError(str(error)), committing=True) from error
            failed_at = self._wire.failed_at
            self._undo()
            if failed_at is None or failed_at >= ours:  # whatever a user's statement or parameter does
                raise users_failure(error, patient=self._is_patient) from error
            if isinstance(error, postgres.DivisionByZero):
                return False
            raise translate(error, committing=False) from error  # one of ours, and an answer
        except Exception as error:  # whatever a user's parameter does, it is theirs alone
            self._undo()
            raise users_failure(error, patient=self._is_patient) from error
        return True

    def _is_in_doubt(self, error: psycopg.Error) -> bool:
        """Whether the connection was lost, so that COMMIT may have been carried out."""
        return not is_answer(error) and (is_lost(error) or self._connection.broken)

    def introduce(self, names: Sequence[str]) -> tuple[str, dict[str, int]]:
        """Tells the ledger's id and the numbers of names, for statements sent over other connections."""
        with self.unit():
            ((ledger_id,),) = self._query(statements.LEDGER_ID, ())
            numbers = self._names.learn(names)
        return str(ledger_id), {name: numbers[name] for name in names}

    def settle_doubt(self) -> None:
        """Ends the server's processes whose commits are in doubt: what they have not done never comes."""
        if self._doubts is not None:
            self._doubts.settle(self._query)

    def is_connected(self) -> bool:
        """Tells whether the server has said nothing of an end, without asking it."""
        if self._wire.is_silent():
            return True
        try:
            self._connection.pgconn.consume_input()  # what the server said on parting, if anything
            self._connection.pgconn.consume_input()  # the end of the connection behind it
        except psycopg.OperationalError:
            return False
        return not self._connection.closed

    def keep_time_apart(self) -> None:
        """Lets a session that only reads keep the ledger's time going too, where it may write at all."""
        (((may_write,),),) = self._wire.send([_MAY_KEEP_TIME])
        if may_write:
            self._wire.send([_KEEP_TIME])

    def begin_look(self) -> int:
        """Begins one consistent moment for reading; tells the number of the ledger's schema."""
        _, rows = self._wire.send([_BEGIN_LOOK, _SCHEMA])
        return int(rows[0][0]) if rows else 0

    def end_look(self) -> bool:
        """Ends a moment for reading; tells whether the connection can serve another."""
        self._undo()
        closed = self._connection.closed
        return not closed and self._connection.info.transaction_status is TransactionStatus.IDLE

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
