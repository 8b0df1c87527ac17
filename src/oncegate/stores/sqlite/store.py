"""The embedded ledger as a store: opens, migrates, examines and joins one SQLite file."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from oncegate.clock import Clock, SystemClock
from oncegate.errors import ConfigError, SchemaMismatch, StoreBusy, StoreError, UsageError
from oncegate.store import ALL_FACETS, AuditTrail, Capabilities, Durability, Finding, Migration
from oncegate.store.incarnations import Incarnations
from oncegate.stores.shared.absence import FilePresence
from oncegate.stores.shared.rehearsal import BUSY, POSSIBLE, WHAT, rehearse
from oncegate.stores.sqlite import schema
from oncegate.stores.sqlite.files import SYNCHRONOUS_LEVELS, open_connection, translated, wide_files
from oncegate.stores.sqlite.incarnation import sight_of
from oncegate.stores.sqlite.joins import connection_behind
from oncegate.stores.sqlite.reading import file_exists, read_only
from oncegate.stores.sqlite.session import JoinedSession, SqliteSession, check_text

_DURABILITY = {
    "NORMAL": Durability.PROCESS_CRASH,
    "FULL": Durability.POWER_LOSS,
    "EXTRA": Durability.POWER_LOSS,
}
_LEVEL_NAMES = {0: "OFF", **{level: name for name, level in SYNCHRONOUS_LEVELS.items()}}


class SqliteStore:
    """One SQLite file. `synchronous` is FULL unless the user says otherwise, and is always told."""

    def __init__(self, path: str | Path, *, synchronous: str = "FULL", clock: Clock | None = None) -> None:
        if synchronous.upper() not in SYNCHRONOUS_LEVELS:
            raise ConfigError(
                f"synchronous={synchronous!r} cannot be used; choose one of {', '.join(SYNCHRONOUS_LEVELS)}"
            )
        self.path = Path(path)
        # A relative path means the folder of now: sessions are opened later too, in whatever folder.
        self._file = self.path.absolute()
        self._synchronous = synchronous.upper()
        self._clock = clock or SystemClock()
        self._presence = FilePresence(self.address)
        self._incarnations = Incarnations()

    @property
    def capabilities(self) -> Capabilities:
        """What the embedded ledger does and promises at its settings."""
        return Capabilities(
            name="sqlite",
            durability=_DURABILITY[self._synchronous],
            writers_max=1,
            audit_trail=AuditTrail.LOG,
            business_writes=True,
            facets=ALL_FACETS,
        )

    @property
    def incarnations(self) -> Incarnations:
        """Which incarnation of the ledger this process has seen."""
        return self._incarnations

    @property
    def address(self) -> str:
        """The file as an address."""
        return f"sqlite:///{quote(str(self.path))}"

    def connect(self) -> SqliteSession:
        """Opens a session; an empty file becomes a ledger, unless this process had one open there."""
        was_here = self._presence.was_here
        if was_here and not self.exists():
            raise self._presence.missing()
        connection = open_connection(self._file, self._synchronous)
        try:
            with translated(self.path):
                if was_here and schema.schema_version(connection) == 0:
                    raise self._presence.missing()
                schema.apply_pending(connection)
                self._presence.seen()
                file, seen = str(self._file), self._incarnations
                session = SqliteSession(connection, self.path, self._clock, file=file, incarnations=seen)
                seen.admit(session)
                seen.check(sight_of(connection, file), lambda: session)
                return session
        except BaseException:
            connection.close()
            raise

    def open_connection(self) -> sqlite3.Connection:
        """A bare connection to an existing ledger, for moving its rows."""
        return open_connection(self._file, self._synchronous)

    def knows(self, names: Sequence[str]) -> bool:
        """Nothing needs to be known before: a joined connection reads the file itself."""
        return True

    def learn(self, names: Sequence[str]) -> None:
        """Nothing to do."""

    def join(self, transaction: object) -> JoinedSession:
        """Wraps a user's own connection that has a transaction open on this very file."""
        with translated(self.path):
            connection = connection_behind(transaction)
        check_text(connection)
        if not self._is_same_file(connection):
            raise UsageError(f"tx= is open on another database than the ledger's, {self.path}")
        self._check_durable(connection)
        session = JoinedSession(connection, self.path, self._clock)
        self._incarnations.admit(session)
        return session

    def _is_same_file(self, connection: sqlite3.Connection) -> bool:
        cursor = connection.cursor()
        cursor.row_factory = None  # theirs may give anything but tuples
        for _, name, file in cursor.execute("PRAGMA database_list").fetchall():
            if name == "main" and file:
                return Path(file).samefile(self._file)
        return False

    def _check_durable(self, connection: sqlite3.Connection) -> None:
        """The user's commit is the outcome's: it must not promise less than the ledger does (I3).

        Asked at every join: the setting can be changed between two transactions, though not inside one.
        """
        cursor = connection.cursor()
        cursor.row_factory = None
        (level,) = cursor.execute("PRAGMA main.synchronous").fetchone()
        if level < min(SYNCHRONOUS_LEVELS[self._synchronous], SYNCHRONOUS_LEVELS["FULL"]):
            promised, found = self._synchronous, _LEVEL_NAMES.get(level, level)
            raise UsageError(
                f"tx= would commit with synchronous={found}, and the ledger promises {promised}: run "
                f"connection.execute('PRAGMA synchronous = {promised}') before its transaction begins"
            )

    def exists(self) -> bool:
        """Tells whether there is a file."""
        return file_exists(self._file)

    @contextmanager
    def look(self, *, again: bool = False) -> Iterator[JoinedSession]:
        """Reads one moment of an existing ledger; creates and changes nothing."""
        was_here = self._presence.was_here
        if not self.exists():
            raise self._presence.missing()
        with read_only(self._file) as connection:
            pending = schema.pending(connection)
            if was_here and pending and pending[0].number == 1:
                raise self._presence.missing()
            if pending:
                raise SchemaMismatch(f"{self.path} is not up to date; run `oncegate migrate`")
            self._presence.seen()
            session = JoinedSession(connection, self.path, self._clock)
            self._incarnations.admit(session)
            yield session

    def close(self) -> None:
        """Nothing is kept: opening a file takes no time."""

    def pending_migrations(self) -> list[Migration]:
        """Tells which migrations the file still needs; all of them if it does not exist."""
        if not self.exists():
            return schema.all_migrations()
        with read_only(self._file) as connection:
            return schema.pending(connection)

    def migrate(self) -> list[Migration]:
        """Applies and returns the pending migrations."""
        connection = open_connection(self._file, self._synchronous)
        try:
            with translated(self.path):
                return schema.apply_pending(connection)
        finally:
            connection.close()

    def make_room(self, now_ms: int) -> list[str]:
        """Nothing to do: SQLite uses the pages of removed rows again."""
        return []

    def examine(self) -> list[Finding]:
        """Looks at the file, its settings and its integrity, and rehearses a claim."""
        try:
            if not self.exists():
                return [Finding(False, "ledger", self.address, "it does not exist; run `oncegate migrate`")]
            session = self.connect()
        except StoreError as error:
            return [Finding(False, "ledger", self.address, str(error))]
        try:
            return [
                Finding(True, "ledger", self.address),
                Finding(True, "sqlite", sqlite3.sqlite_version),
                self._examine_schema(),
                self._examine_durability(),
                self._examine_permissions(),
                self._examine_integrity(session),
                self._examine_writing(session),
            ]
        finally:
            session.close()

    def _examine_schema(self) -> Finding:
        with read_only(self._file) as connection:
            lost = schema.lost_in(connection)
        version = f"version {schema.all_migrations()[-1].number}"
        if not lost:
            return Finding(True, "schema", f"{version}, up to date")
        step = "restore the file from a copy: no migration brings lost records back"
        return Finding(False, "schema", f"{version}, but without {', '.join(lost)}", step)

    def _examine_durability(self) -> Finding:
        durability = self.capabilities.durability
        value = f"synchronous={self._synchronous}, WAL: a committed record {durability.value}"
        safe = durability is Durability.POWER_LOSS
        return Finding(safe, "durability", value, "" if safe else "use synchronous=FULL")

    def _examine_permissions(self) -> Finding:
        """A ledger holds signing secrets and the page's session key."""
        wide = wide_files(self._file)
        if not wide:
            return Finding(True, "permissions", "only the owner can read the files")
        value = f"others can read or write {', '.join(file.name for file in wide)}"
        step = f"run: chmod 600 {' '.join(shlex.quote(str(file)) for file in wide)}"
        return Finding(True, "permissions", value, step)

    def _examine_integrity(self, session: SqliteSession) -> Finding:
        ((answer,),) = session.read_pragma("quick_check(1)")
        step = "restore the file from a copy; do not delete its keys"
        return Finding(answer == "ok", "integrity", str(answer), "" if answer == "ok" else step)

    def _examine_writing(self, session: SqliteSession) -> Finding:
        try:
            rehearse(session, self._clock.wall_ms())
        except StoreBusy:
            return BUSY
        except StoreError as error:
            return Finding(False, WHAT, "not possible", str(error))
        return POSSIBLE
