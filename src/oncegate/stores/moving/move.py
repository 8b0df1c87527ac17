"""Moves a whole ledger from SQLite to PostgreSQL: fence the old one, copy, compare, open the new one.

The old ledger is fenced first: a program that writes to it gets an error that names the new address, and no
crash lifts the fence. The new ledger refuses every program until all of it was copied and compared. Each
step commits its rows with how far it has come, so that a move that was killed goes on where it stopped.
Must never let both ledgers be used, or open the new one with a key less than the old one has.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from typing import Any, Final

import msgspec
import psycopg
from msgspec import Struct

from oncegate.clock import Clock
from oncegate.errors import ConfigError, SchemaMismatch, StoreCorrupt, StoreUnavailable
from oncegate.store.log import LogKind
from oncegate.stores.moving.tables import COUNTED, TABLES, Clocks, MovedTable, unmoved
from oncegate.stores.postgres.store import PostgresStore
from oncegate.stores.shared.homes import STAMP
from oncegate.stores.shared.migrations import MOVED
from oncegate.stores.sqlite.files import MOVED_PREFIX
from oncegate.stores.sqlite.schema import all_migrations
from oncegate.stores.sqlite.store import SqliteStore

MOVING: Final = "moving"  # the row of the new ledger's oncegate_meta that says how far the move has come
ROWS_AT_ONCE: Final = 2_000
LOCK_WAIT_MS: Final = 2_000
UNDONE: Final = "has a part of a ledger whose move was undone; use the old ledger, or an empty database"
ACTOR: Final = "migrate-ledger"
_META: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE"
    " SET value = excluded.value"
)
_OURS: Final = "SELECT name FROM sqlite_master WHERE type = ? AND name LIKE 'oncegate_%'"
_LEDGER_ID: Final = "SELECT value FROM oncegate_meta WHERE name = 'ledger_id'"
_HASH_BITS: Final = 256

Tell = Callable[[str, int, int], None]  # what is done, rows so far, rows in all


class MoveProgress(Struct, frozen=True):
    """How far a move has come, as the new ledger keeps it."""

    ledger_id: str
    source: str
    clocks: Clocks
    done: dict[str, int] = {}
    undone: bool = False


class MoveReport(Struct, frozen=True):
    """What was moved: rows by table, each compared by a hash over all of them."""

    tables: dict[str, int]
    hashes: dict[str, str]


class LedgerMove:
    """One move. `run` may be called again after anything, until it has returned."""

    def __init__(
        self, source: SqliteStore, target: str, clock: Clock, *, at_once: int = ROWS_AT_ONCE
    ) -> None:
        self._source, self._target, self._clock, self._at_once = source, target, clock, at_once
        self._shown = PostgresStore(target).address

    def run(self, tell: Tell) -> MoveReport:
        """Moves, compares and opens the new ledger; raises ConfigError where it cannot begin."""
        self._check_source()
        with self._alone() as new:
            progress = self._begun(new)
            self._fence(new)
            with closing(self._opened()) as old:
                for table in TABLES:
                    progress = self._copy(old, new, table, progress, tell)
                report = self._compared(old, new, progress.clocks, tell)
                self._finish(old, new, progress)
        return report

    @contextmanager
    def _alone(self) -> Iterator[psycopg.Connection[Any]]:
        """The new ledger, with a lock that lasts as long as the connection: one command at a time."""
        try:
            connection = psycopg.connect(self._target, autocommit=True)
        except psycopg.OperationalError as error:
            raise PostgresStore(self._target).refused(error) from error
        with connection as new:
            try:
                with new.transaction():  # a killed command's connection may take a moment to end
                    new.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}".encode())
                    new.execute("SELECT pg_advisory_lock(7229, 3)")
            except psycopg.errors.LockNotAvailable:
                raise ConfigError(
                    f"another `oncegate migrate-ledger` works on {self._shown}; stop it or wait"
                ) from None
            yield new

    def _check_source(self) -> None:
        path = self._source.path
        with closing(self._opened()) as old:
            known = dict(old.execute("SELECT name, value FROM oncegate_meta"))
            if str(known.get("schema_version")) != str(all_migrations()[-1].number):
                raise SchemaMismatch(
                    f"{path} has an older schema; run: oncegate migrate --url sqlite:///{path}"
                )
            self._refuse_shard(old)
            try:
                unknown = unmoved(old)
            except sqlite3.OperationalError as error:
                raise SchemaMismatch(f"{path} cannot be moved by this version: {error}") from None
        if unknown:
            raise SchemaMismatch(
                f"{path} has tables or columns that this version cannot move: {', '.join(unknown)};"
                " nothing was changed. Use the version of oncegate that made them"
            )

    def _refuse_shard(self, old: sqlite3.Connection) -> None:
        asked = "SELECT body FROM oncegate_document WHERE kind = ? AND name = ?"
        if (found := old.execute(asked, STAMP).fetchone()) is not None:
            _, index, count, _ = bytes(found[0]).decode().split("/")
            raise SchemaMismatch(
                f"{self._source.path} is shard {index} of {count} of a sharded ledger; name all of its"
                " shards"
            )

    def _opened(self) -> sqlite3.Connection:
        if not self._source.path.exists():
            raise StoreUnavailable(f"there is no ledger at {self._source.address}")
        return sqlite3.connect(f"{self._source.path.resolve().as_uri()}?mode=ro", uri=True)

    def _known(self, new: psycopg.Connection[Any]) -> MoveProgress | None:
        """How far a move of this ledger has come; raises ConfigError where it is one of another ledger."""
        found = _progress_in(new)
        if found is None:
            return None
        progress = msgspec.json.decode(found, type=MoveProgress)
        with closing(self._opened()) as old:
            ledger_id = old.execute(_LEDGER_ID).fetchone()[0]
        if progress.ledger_id != ledger_id:
            raise ConfigError(f"{self._shown} is being filled from {progress.source}; finish that first")
        return progress

    def _begun(self, new: psycopg.Connection[Any]) -> MoveProgress:
        """How far an earlier run has come; a new move begins with a ledger that has nothing in it."""
        progress = self._known(new)
        if progress is not None and progress.undone:
            raise ConfigError(f"the move to {self._shown} was undone; move into another, empty database")
        if progress is not None:
            return progress
        with closing(self._opened()) as old:
            if _fence_of(old) is not None:
                raise ConfigError(
                    f"{self._source.address} was moved, or is being moved, not to {self._shown}; `oncegate"
                    " doctor` on it says where"
                )
            ledger_id = old.execute(_LEDGER_ID).fetchone()[0]
        return self._first(new, str(ledger_id))

    def _first(self, new: psycopg.Connection[Any], ledger_id: str) -> MoveProgress:
        PostgresStore(self._target).connect().close()  # makes the tables
        ahead = self._ticks_ahead(new)
        with new.transaction():
            new.execute("LOCK TABLE oncegate_entry, oncegate_name, oncegate_log IN ACCESS EXCLUSIVE MODE")
            full = [one.name for one in TABLES if _one(new, f"SELECT EXISTS (SELECT 1 FROM {one.name})")]
            if full:
                raise ConfigError(
                    f"{self._shown} is in use ({full[0]} has rows); a ledger is moved into an empty one"
                )
            clocks = Clocks(int(_one(new, "SELECT oncegate_now()")), ahead)
            progress = MoveProgress(ledger_id, self._source.address, clocks)
            text = "is being filled by `oncegate migrate-ledger`; run that again to finish"
            new.execute(_META, (MOVED, text))
            _save(new, progress)
        return progress

    def _ticks_ahead(self, new: psycopg.Connection[Any]) -> int:
        with self._source.look() as session:
            old_now = session.now_ticks()
        return int(_one(new, "SELECT oncegate_now()")) - old_now

    @property
    def _fence_text(self) -> str:
        return f"was moved to {self._shown}; use that address"

    def _fence(self, new: psycopg.Connection[Any]) -> None:
        """From here on nothing writes to the old ledger: one transaction, after the writer under way."""
        said = f"{MOVED_PREFIX} {self._fence_text}".replace("'", "''")
        with closing(sqlite3.connect(self._source.path, timeout=60, isolation_level=None)) as old:
            old.execute("PRAGMA synchronous = FULL")
            old.execute("BEGIN IMMEDIATE")
            known = self._known(new)  # a lost connection has lost its lock: the move may be undone by now
            if known is None or known.undone:
                raise ConfigError(
                    f"the move to {self._shown} was undone; {self._source.address} stays open"
                )
            tables = [name for (name,) in old.execute(_OURS, ("table",)) if name != "oncegate_meta"]
            for table in tables:
                for verb in ("INSERT", "UPDATE", "DELETE"):
                    name = f"{table}_moved_{verb.lower()}"
                    old.execute(
                        f"CREATE TRIGGER IF NOT EXISTS {name} BEFORE {verb} ON {table}"
                        f" BEGIN SELECT RAISE(ABORT, '{said}'); END"
                    )
            old.execute(
                "INSERT OR REPLACE INTO oncegate_meta (name, value) VALUES (?, ?)",
                (MOVED, self._fence_text),
            )
            old.execute("COMMIT")

    def _copy(
        self,
        old: sqlite3.Connection,
        new: psycopg.Connection[Any],
        table: MovedTable,
        progress: MoveProgress,
        tell: Tell,
    ) -> MoveProgress:
        """Copies what is left of a table; the rows and how far it has come are one commit."""
        done = progress.done.get(table.name, 0)
        (total,) = old.execute(f"SELECT count(*) FROM ({table.select})").fetchone()
        if done >= total:
            return progress
        cursor = old.execute(f"{table.select} LIMIT -1 OFFSET ?", (done,))
        while rows := cursor.fetchmany(self._at_once):
            with new.transaction():
                _insert(new, table, table.rows(rows, progress.clocks))
                done += len(rows)
                progress = msgspec.structs.replace(progress, done={**progress.done, table.name: done})
                _save(new, progress)
            tell(f"copied {table.name}", done, total)
        return progress

    def _compared(
        self, old: sqlite3.Connection, new: psycopg.Connection[Any], clocks: Clocks, tell: Tell
    ) -> MoveReport:
        """Reads every row of both ledgers; raises StoreCorrupt unless they are the same."""
        tables, hashes = {}, {}
        for table in TABLES:
            wanted = _hash(table.rows(rows, clocks) for rows in self._all_of(old, table))
            with new.transaction(), new.cursor(f"compare_{table.name}") as cursor:
                columns = ", ".join(table.columns)
                cursor.execute(f"SELECT {columns} FROM {table.name}".encode())
                found = _hash(self._fetched(cursor))
            if wanted != found:
                raise StoreCorrupt(
                    f"{table.name} has {found[0]} rows in {self._shown}, and {wanted[0]} or others in"
                    " the old ledger; the new ledger stays closed. Move into another, empty database"
                )
            tables[table.name], hashes[table.name] = wanted
            tell(f"compared {table.name}", wanted[0], wanted[0])
        return MoveReport(tables, hashes)

    def _all_of(self, old: sqlite3.Connection, table: MovedTable) -> Iterator[list[Any]]:
        return self._fetched(old.execute(table.select))

    def _fetched(self, cursor: Any) -> Iterator[list[Any]]:
        while rows := cursor.fetchmany(self._at_once):
            yield rows

    def _finish(
        self, old: sqlite3.Connection, new: psycopg.Connection[Any], progress: MoveProgress
    ) -> None:
        """Numbers go on above all that were ever given out; then the new ledger opens."""
        known = dict(old.execute("SELECT name, value FROM oncegate_meta"))
        highest = "SELECT max(max(id), max(fence)) FROM oncegate_entry"
        number = max(int(known.get("floor") or 0), int(old.execute(highest).fetchone()[0] or 0), 1)
        with new.transaction():
            new.execute("SELECT setval('oncegate_number', %s)", (number,))
            for table, column in COUNTED.items():
                new.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'),"
                    f" greatest((SELECT max({column}) FROM {table}), 1))".encode()
                )
            for name in ("ledger_id", "feed_secret"):
                new.execute(_META, (name, str(known[name])))
            self._journal(new)
            new.execute("DELETE FROM oncegate_meta WHERE name IN (%s, %s)", (MOVED, MOVING))
        new.execute("ANALYZE")

    def _journal(self, new: psycopg.Connection[Any]) -> None:
        new.execute("INSERT INTO oncegate_name (text) VALUES (%s) ON CONFLICT DO NOTHING", (ACTOR,))
        note = f"the ledger was moved here from {self._source.address}"
        new.execute(
            "INSERT INTO oncegate_log (entry, kind, at, actor, note)"
            " SELECT 0, %s, %s, id, %s FROM oncegate_name WHERE text = %s",
            (LogKind.DOCUMENT_CHANGED.value, self._clock.wall_ms(), note, ACTOR),
        )

    def undo(self) -> None:
        """Opens the old ledger again, while the new one is not finished; that one stays closed.

        The new ledger says so before the fence is lifted: from then on no run goes on with this move.
        """
        with self._alone() as new:
            progress = self._known(new)
            if progress is None:
                raise ConfigError(
                    f"{self._shown} is not being filled: a move that has ended cannot be undone"
                )
            with closing(sqlite3.connect(self._source.path, timeout=60, isolation_level=None)) as old:
                old.execute("BEGIN IMMEDIATE")
                said = _fence_of(old)
                if said not in {None, self._fence_text}:
                    raise ConfigError(f"{self._source.address} {said}; undo the move with that address")
                with new.transaction():
                    _save(new, msgspec.structs.replace(progress, undone=True))
                    new.execute(_META, (MOVED, UNDONE))
                for (trigger,) in old.execute(_OURS, ("trigger",)).fetchall():
                    if "_moved_" in trigger:
                        old.execute(f"DROP TRIGGER {trigger}")
                old.execute("DELETE FROM oncegate_meta WHERE name = ?", (MOVED,))
                old.execute("COMMIT")


def _fence_of(old: sqlite3.Connection) -> str | None:
    found = old.execute("SELECT value FROM oncegate_meta WHERE name = ?", (MOVED,)).fetchone()
    return None if found is None else str(found[0])


def _one(connection: psycopg.Connection[Any], sql: str) -> Any:
    row = connection.execute(sql.encode()).fetchone()
    return None if row is None else row[0]


def _progress_in(new: psycopg.Connection[Any]) -> str | None:
    if not _one(new, "SELECT to_regclass('oncegate_meta') IS NOT NULL"):
        return None
    found = _one(new, f"SELECT value FROM oncegate_meta WHERE name = '{MOVING}'")
    return None if found is None else str(found)


def _save(new: psycopg.Connection[Any], progress: MoveProgress) -> None:
    new.execute(_META, (MOVING, msgspec.json.encode(progress).decode()))


def _insert(new: psycopg.Connection[Any], table: MovedTable, rows: list[tuple[Any, ...]]) -> None:
    columns = ", ".join(table.columns)
    with new.cursor() as cursor, cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def _hash(batches: Iterator[list[tuple[Any, ...]]]) -> tuple[int, str]:
    """How many rows there are, and a sum of their hashes: the same in whatever order they come."""
    count = total = 0
    for rows in batches:
        for row in rows:
            text = repr(tuple(bytes(one) if isinstance(one, memoryview) else one for one in row))
            total = (total + int.from_bytes(sha256(text.encode()).digest())) % (1 << _HASH_BITS)
            count += 1
    return count, f"{total:064x}"
