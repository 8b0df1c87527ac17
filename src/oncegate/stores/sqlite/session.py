"""One connection to the embedded ledger: transactions, the ledger's own time, users' statements.

The group commit uses one session from one thread at a time. Must never report a commit as failed that
may have happened: an error of COMMIT itself is StoreUnknown unless SQLite certainly undid it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import fsencode, stat
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, cast

from oncegate.clock import Clock
from oncegate.errors import StoreError, StoreRejected, StoreUnavailable, StoreUnknown, UsageError
from oncegate.store import Outgoing, Placed, Reservation, Reserved, Settlement
from oncegate.store.feed import EventToPublish, Published
from oncegate.store.incarnations import Incarnations
from oncegate.stores.shared.driver_detection import DriverKind, is_still_open
from oncegate.stores.sqlite.browsing import SqliteBrowsing
from oncegate.stores.sqlite.census import SqliteCensus
from oncegate.stores.sqlite.claims import SqliteClaims
from oncegate.stores.sqlite.contents import SqliteContents
from oncegate.stores.sqlite.feed import SqliteFeed
from oncegate.stores.sqlite.files import BUSY_WAIT_MS, identity_of, is_the_stores, translate, translated
from oncegate.stores.sqlite.lane_census import SqliteLaneCensus
from oncegate.stores.sqlite.lane_desk import SqliteLaneDesk
from oncegate.stores.sqlite.mutations import SqliteMutations
from oncegate.stores.sqlite.names import Names
from oncegate.stores.sqlite.notices import SqliteNotices
from oncegate.stores.sqlite.people import SqlitePeople
from oncegate.stores.sqlite.positions import SqlitePositions
from oncegate.stores.sqlite.pruning import SqlitePruning
from oncegate.stores.sqlite.registry import SqliteRegistry
from oncegate.stores.sqlite.resources import SqliteResources
from oncegate.stores.sqlite.seen import SqliteSeen
from oncegate.stores.sqlite.tallies import SqliteTallies
from oncegate.stores.sqlite.ticks import anchor_ticks, read_anchor
from oncegate.stores.sqlite.traces import SqliteTraces


class SqliteUnit:
    """The transactions of a session, as a with block; one for all of them, as every event passes two."""

    __slots__ = ("_session", "_wait")

    def __init__(self, session: SqliteSession, wait: bool) -> None:
        self._session = session
        self._wait = wait

    def __enter__(self) -> None:
        """Begins as a writer."""
        session = self._session
        if session._seen_as is not None:
            try:  # as `identity_of`, without its tuple
                found = stat(session._stat_path)  # noqa: PTH116  every unit asks, and a Path costs twice as much
            except OSError:
                session.refuse_other_file()
            if found.st_ino != session._seen_number or found.st_dev != session._seen_device:
                session.refuse_other_file()
        try:
            if self._wait is not session._waits:
                session.wait_for_others(self._wait)
            session._cursor.execute("BEGIN IMMEDIATE")
            now_ms, names = session._clock.ticks_ms(), session._names
            if not names.kept_from_ms <= now_ms < names.kept_until_ms:
                names.expire(now_ms)
        except sqlite3.Error as error:
            raise translate(error, session._path) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commits, or rolls back and turns an error of SQLite's into ours."""
        session = self._session
        if kind is not None:
            session.undo(error)
            return
        try:
            session._cursor.execute("COMMIT")
        except sqlite3.Error as refused:
            raise session.not_committed(refused) from refused


class SqliteLedger(
    SqliteClaims,
    SqliteCensus,
    SqliteBrowsing,
    SqlitePruning,
    SqliteRegistry,
    SqlitePeople,
    SqliteFeed,
    SqliteContents,
    SqliteLaneDesk,
    SqliteLaneCensus,
    SqliteResources,
    SqliteMutations,
    SqliteTallies,
    SqliteSeen,
    SqlitePositions,
    SqliteTraces,
    SqliteNotices,
):
    """All parts of the contract, on whatever connection a session has."""


class SqliteSession(SqliteLedger):
    """A session that owns its connection."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        clock: Clock,
        *,
        file: str | None = None,
        incarnations: Incarnations | None = None,
    ) -> None:
        self._seen_as, self._stat_path = identity_of(file), fsencode(file or "")
        self._seen_device, self._seen_number = self._seen_as or (0, 0)
        self._incarnations = incarnations
        self._connection = connection
        self._cursor = connection.cursor()
        self._names = Names(connection)
        self._path = path
        self._clock = clock
        self._waits = True
        self._unit, self._unit_at_once = SqliteUnit(self, True), SqliteUnit(self, False)
        with translated(path):
            self._offset_ms = anchor_ticks(connection, clock)

    def now_ticks(self) -> int:
        """The ledger's own time: the machine's ticks, carried on over restarts."""
        return self._clock.ticks_ms() + self._offset_ms

    def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> SqliteUnit:
        """One transaction, begun as a writer so that it cannot fail halfway for want of the lock."""
        return self._unit if wait else self._unit_at_once

    def refuse_other_file(self) -> NoReturn:
        """Another file has come to the ledger's place: what is written here would be lost."""
        raise StoreUnavailable(
            f"{self._path} was replaced by another file while this process had it open; nothing was"
            " written, try again"
        )

    def _went_back(self, number: int) -> StoreUnavailable:
        """An entry was given a number that another one had: the contents of the file are older now."""
        if self._incarnations is not None:
            self._incarnations.note(self._highest)
        return StoreUnavailable(
            f"{self._path} was restored from an older copy while this process had it open: entry {number}"
            f" is new, {self._highest} was seen before. Nothing was written, try again"
        )

    def wait_for_others(self, wait: bool) -> None:
        """Whether this connection waits while another one writes, from now on."""
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_WAIT_MS if wait else 0}")
        self._waits = wait

    def undo(self, error: BaseException | None) -> None:
        """Rolls back, and turns an error of SQLite's into ours."""
        self._undo()
        if isinstance(error, sqlite3.Error):
            raise translate(error, self._path) from error

    def not_committed(self, error: sqlite3.Error) -> StoreError:
        """What an error of COMMIT means; one that leaves the outcome open is StoreUnknown."""
        self._undo()
        if getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR"):
            return StoreUnknown(f"{self._path}: the commit may or may not have happened")
        return translate(error, self._path)

    def _undo(self) -> None:
        self._highest = 0  # numbers of an undone unit are given out again
        self._names.forget()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            return  # the connection is unusable; whoever uses it next gets the real error

    def execute(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Runs a user's statement inside the open unit."""
        self._check_open()
        try:
            rows = self._connection.execute(sql, parameters).fetchall()
        except Exception as error:
            if is_the_stores(error):
                raise
            # Whatever else a user's statement or parameter does, it is theirs alone.
            raise StoreRejected(f"a statement failed: {error}") from error
        self._check_open()
        return rows

    def _check_open(self) -> None:
        """A statement that fails may end the transaction by itself: those after it would stand alone."""
        if not self._connection.in_transaction:
            raise UsageError("a statement ended the transaction; leave COMMIT and ROLLBACK to the gate")

    def settle_doubt(self) -> None:
        """Writes a page, which overwrites frames that a failed commit may have left in the WAL."""
        self._connection.execute(
            "INSERT INTO oncegate_meta (name, value) VALUES ('doubts', 1)"
            " ON CONFLICT (name) DO UPDATE SET value = value + 1"
        )

    def read_pragma(self, pragma: str) -> list[tuple[Any, ...]]:
        """Reads one of SQLite's own answers, for `doctor`."""
        with translated(self._path):
            return self._connection.execute(f"PRAGMA {pragma}").fetchall()

    def close(self) -> None:
        """Closes the connection."""
        try:
            self._connection.close()
        except sqlite3.Error:
            return


def check_text(connection: sqlite3.Connection) -> None:
    """Raises UsageError for a user's connection that does not read text as text."""
    if connection.text_factory is not str:
        raise UsageError("tx= has a text_factory of its own; the ledger needs plain str")


class PlainRows:
    """A user's connection, read in plain tuples whatever row factory they have set."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        check_text(connection)
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Runs a statement."""
        return self._cursor().execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        """Runs a statement for many rows."""
        return self._cursor().executemany(sql, rows)

    def _cursor(self) -> sqlite3.Cursor:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor


class JoinedSession(SqliteLedger):
    """A session on a user's own connection: it writes into their transaction and never ends it."""

    is_async = False
    mark: str | None = None

    def __init__(self, connection: sqlite3.Connection, path: Path, clock: Clock) -> None:
        self._users = connection
        plain = cast("sqlite3.Connection", PlainRows(connection))
        self._connection = plain
        self._cursor = cast("sqlite3.Cursor", plain)
        self._names = Names(plain)
        self._path = path
        self._clock = clock
        with translated(path):
            self._offset_ms = read_anchor(plain, clock)

    def now_ticks(self) -> int:
        """The ledger's own time."""
        return self._clock.ticks_ms() + self._offset_ms

    @contextmanager
    def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> Iterator[None]:
        """The user's own transaction: nothing is begun, committed or undone here."""
        try:
            yield
        except sqlite3.Error as error:
            failure: StoreError = translate(error, self._path)
            raise failure from error

    def _check_newer(self, first: int, last: int) -> None:
        """Not asked: the user may undo what was numbered here."""

    def reserve_one(self, reservation: Reservation) -> Reserved:
        """Reserves a key in the user's transaction."""
        with self.unit():
            return self.reserve([reservation])[0]

    def settle_one(self, settlement: Settlement) -> bool:
        """Ends a claim in the user's transaction."""
        with self.unit():
            return self.settle([settlement])[0]

    def publish_one(self, publication: EventToPublish) -> Published:
        """Publishes an event in the user's transaction."""
        with self.unit():
            return self.publish([publication])[0]

    def enqueue_one(self, event: Outgoing) -> Placed:
        """Puts an event at the end of its lane in the user's transaction."""
        with self.unit():
            return self.enqueue([event])[0]

    def is_open(self) -> bool:
        """Whether the user's transaction has not been ended yet."""
        return is_still_open(DriverKind.SQLITE3, self._users)

    def execute(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Runs a statement in the user's transaction."""
        return self._connection.execute(sql, parameters).fetchall()

    def settle_doubt(self) -> None:
        """Nothing to do: the user's transaction is the user's to end."""

    def close(self) -> None:
        """Leaves the user's connection alone."""
