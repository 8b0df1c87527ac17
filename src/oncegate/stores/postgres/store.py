"""PostgreSQL as a store: connects with limits, migrates, checks durability, examines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import psycopg
from psycopg import errors as postgres

from oncegate.clock import Clock, SystemClock
from oncegate.commit import greenlet_bridge
from oncegate.errors import (
    BadUrl,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
)
from oncegate.store import ALL_FACETS, AuditTrail, Capabilities, Durability, Finding, Joined, Migration
from oncegate.store.incarnations import Incarnations
from oncegate.stores.postgres import catalogue, eras, poolers, schema
from oncegate.stores.postgres.address import escaped, shown_address, shown_user, taken_apart, unreachable
from oncegate.stores.postgres.arrays import register
from oncegate.stores.postgres.examining import (
    DURABLE,
    DURABLE_SETTINGS,
    examine_server,
)
from oncegate.stores.postgres.failures import first_line, refuse_durability, translate
from oncegate.stores.postgres.in_doubt_commits import Doubts
from oncegate.stores.postgres.incarnation import POSITION_SLACK, read_sight
from oncegate.stores.postgres.joins import join
from oncegate.stores.postgres.limits import LimitedConnection, refuse_late_patches
from oncegate.stores.postgres.partitions import drop_empty_months, ensure_partitions
from oncegate.stores.postgres.read_sessions import Looks
from oncegate.stores.postgres.rights import examine_writing
from oncegate.stores.postgres.session import PostgresSession
from oncegate.stores.postgres.statement_generators import Facts
from oncegate.stores.shared.absence import FilePresence

SERVER_VERSION_MIN: Final = 140000
WRITERS: Final = 2  # one batch is prepared while the other commits; more did not help
CONNECT_WAIT_SECONDS: Final = 10
STATEMENT_WAIT_MS: Final = 25_000  # below the caller's own limit, so that the server decides first
_DEFAULTS: Final[dict[str, Any]] = {
    "application_name": "oncegate",
    "client_encoding": "UTF8",
    "connect_timeout": CONNECT_WAIT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# Plans are made while tables are small, and kept: they must look rows up all the same. A statement that
# reads a whole table after all then seems to cost 1e10, and a server with JIT would compile it for seconds.
# Every statement relies on what READ COMMITTED sees, whatever the database's own default is.
_SETTINGS: Final = {
    "statement_timeout": str(STATEMENT_WAIT_MS),
    "enable_seqscan": "off",
    "jit": "off",
    "default_transaction_isolation": "read committed",
}

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresStore:
    """One PostgreSQL database.

    `accept_loss` goes on where the server's settings can lose acknowledged commits, and says so. A given
    `clock` replaces the server's clock as the ledger's time; only tests do that.
    """

    def __init__(self, url: str, *, clock: Clock | None = None, accept_loss: bool = False) -> None:
        self._url = url
        self._clock = clock
        self._accept_loss = accept_loss
        self._durability = Durability.POWER_LOSS
        self._doubts = Doubts()
        self._is_pooler_judged = self._is_schema_judged = False
        self._given = taken_apart(url)
        self._presence = FilePresence(self.address)
        self._facts = Facts(None if clock is None else clock.ticks_ms)
        self._learning = threading.Lock()
        self._incarnations = Incarnations(slack=POSITION_SLACK)
        self._incarnations.attach(self._facts)
        self._looks = Looks(self._open_look, self._begin_look)

    @property
    def capabilities(self) -> Capabilities:
        """What this ledger does, and promises at the server's settings."""
        return Capabilities(
            name="postgres",
            durability=self._durability,
            writers_max=WRITERS,
            audit_trail=AuditTrail.LOG,
            business_writes=True,
            facets=ALL_FACETS,
            one_writer=False,
            is_local=False,
            gives_way=greenlet_bridge.AVAILABLE,
        )

    @property
    def incarnations(self) -> Incarnations:
        """Which incarnation of the ledger this process has seen."""
        return self._incarnations

    @property
    def address(self) -> str:
        """The address without its password."""
        return shown_address(self._given)

    def connect(self) -> PostgresSession:
        """Opens a session; an empty database becomes a ledger."""
        connection = self._open_durable()
        try:
            # Not where a session reopens: it may be in a transaction that stands in the way.
            ensure_partitions(connection, self._wall_ms())
            return PostgresSession(
                connection,
                self._ticks,
                reopen=self._open_durable,
                doubts=self._doubts,
                incarnations=self._incarnations,
            )
        except psycopg.Error as error:
            connection.close()
            raise translate(error, committing=False) from error
        except BaseException:
            connection.close()
            raise

    def _open_durable(self) -> Connection:
        """A connection to an up-to-date ledger on a server that keeps what it acknowledges."""
        connection = self.open_connection()
        try:
            self._prepare(connection)
            self._check_durability(connection)
            if self._presence.was_here and not schema.exists(connection):
                raise self._presence.missing()
            schema.apply_pending(connection)
            self._refuse_damage(connection)
            eras.note_server(connection)
            self._presence.seen()
            self._check_incarnation(connection)
            return connection
        except psycopg.Error as error:
            connection.close()
            raise translate(error, committing=False) from error
        except BaseException:
            connection.close()
            raise

    def _check_incarnation(self, connection: Connection) -> None:
        session = PostgresSession(connection, self._ticks)
        self._incarnations.admit(session)
        sight = read_sight(connection, self._incarnations.identity)
        if sight is not None:
            self._incarnations.check(sight, lambda: session)
        connection.execute("DEALLOCATE ALL")  # the connection's own session prepares under the same names

    def _refuse_damage(self, connection: Connection) -> None:
        """Once: a ledger is not damaged while it is in use, and the comparison takes milliseconds."""
        if not self._is_schema_judged:
            catalogue.refuse_damage(connection)
            self._is_schema_judged = True

    def _wall_ms(self) -> int:
        return (self._clock or SystemClock()).wall_ms()

    @property
    def _ticks(self) -> Callable[[], int] | None:
        return None if self._clock is None else self._clock.ticks_ms

    def open_connection(self) -> LimitedConnection:
        """A bare connection, to a server that a ledger can be on."""
        connection = self._dial()
        if connection.info.server_version < SERVER_VERSION_MIN:
            version, needed = connection.info.server_version // 10000, SERVER_VERSION_MIN // 10000
            connection.close()
            raise StoreUnavailable(
                f"the server at {self.address} is PostgreSQL {version}; {needed} or newer is needed"
            )
        self._refuse_encoding(connection)
        register(connection)
        # Else a user's DROP or ALTER makes the driver deallocate what `Wire` has prepared.
        connection.prepare_threshold = None
        return connection

    def _refuse_encoding(self, connection: LimitedConnection) -> None:
        """Labels and reasons are any text; other encodings refuse some, or keep bytes as they are."""
        encoding = connection.info.parameter_status("server_encoding")
        if encoding in (None, "UTF8"):
            return
        connection.close()
        raise StoreUnavailable(
            f"the database at {self.address} has the encoding {encoding}; UTF8 is needed: CREATE DATABASE "
            "name ENCODING 'UTF8' TEMPLATE template0, and name that one in the address"
        )

    def _dial(self) -> LimitedConnection:
        refuse_late_patches()
        options = " ".join(f"-c {name}={escaped(value)}" for name, value in _SETTINGS.items())
        given = self._given.get("options", "")
        settings = {**_DEFAULTS, **self._given, "options": f"{options} {given}".strip()}
        try:
            return LimitedConnection.connect(autocommit=True, **settings)
        except psycopg.OperationalError as error:
            if not poolers.refuses_options(error) or given:
                raise self.refused(error) from error
        except psycopg.Error as error:
            raise BadUrl(f"{self.address}: {self._told(error)}") from error
        del settings["options"]
        try:
            return LimitedConnection.connect(autocommit=True, **settings)
        except psycopg.OperationalError as error:
            raise self.refused(error) from error

    def refused(self, error: psycopg.Error) -> StoreUnavailable:
        """The error for a server that did not take a connection; it shows no password."""
        return unreachable(self.address, self._told(error))

    def _told(self, error: psycopg.Error) -> str:
        """The driver's words; they quote the user, which may have a password in it."""
        user = str(self._given.get("user", ""))
        return first_line(error).replace(user, shown_user(self._given)) if user else first_line(error)

    def _prepare(self, connection: LimitedConnection) -> None:
        """Behind a pooler, which may have left the settings out, they are made here."""
        if not poolers.is_pooled(connection):
            return
        if not self._is_pooler_judged:
            poolers.refuse_transaction_mode(connection, self.open_connection)
            self._is_pooler_judged = True
        for name, value in _SETTINGS.items():
            connection.execute(f"SET {name} = '{value}'".encode())

    def _check_durability(self, connection: Connection) -> None:
        for setting in DURABLE_SETTINGS:
            (value,) = connection.execute(f"SHOW {setting}").fetchone() or ("",)
            if value not in DURABLE:
                if not self._accept_loss:
                    raise refuse_durability(setting, value)
                self._durability = Durability.PROCESS_CRASH
            elif setting == "synchronous_commit":  # kept as it is: a reload of the server cannot lower it
                connection.execute(f"SET synchronous_commit = '{value}'".encode())

    def knows(self, names: Sequence[str]) -> bool:
        """Tells whether the ledger's id and the numbers of these names are known."""
        return self._facts.knows(names)

    def learn(self, names: Sequence[str]) -> None:
        """Reads the ledger's id and the numbers of names; names that are new are written.

        Of many who begin at once, each with a transaction of its own, one asks.
        """
        is_first = self._learning.acquire(timeout=CONNECT_WAIT_SECONDS)
        try:
            if not self._facts.knows(names):
                with closing(self.connect()) as session:
                    self._facts.keep(*session.introduce(names))
        finally:
            if is_first:
                self._learning.release()

    def join(self, transaction: object) -> Joined:
        """Wraps a user's open transaction."""
        return join(transaction, self._facts)

    def exists(self) -> bool:
        """Tells whether the database holds a ledger; a server that cannot be reached says why not."""
        connection = self.open_connection()
        try:
            return schema.exists(connection)
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        finally:
            connection.close()

    @contextmanager
    def look(self, *, again: bool = False) -> Iterator[PostgresSession]:
        """Reads one moment of an existing ledger; creates and changes nothing but the time it keeps."""
        try:
            if not again:
                yield from self._look_once()
                return
            kept = self._looks.take()
            try:
                yield kept.session
            finally:
                self._looks.give(kept)
        except psycopg.Error as error:
            raise translate(error, committing=False) from error

    def _look_once(self) -> Iterator[PostgresSession]:
        session = self._open_look()
        try:
            yield session
        finally:
            session.close()

    def _open_look(self) -> PostgresSession:
        """A session at the beginning of a look, on a ledger that is as it should be."""
        connection = self.open_connection()
        try:
            self._check_schema(connection)
            # A kept one has its statements prepared; they are planned for what they are asked all the same.
            connection.execute("SET plan_cache_mode = force_custom_plan")
            # Whoever looks keeps the ledger's time, and must not wait for a standby that is away.
            connection.execute("SET synchronous_commit = local")
            session = PostgresSession(connection, self._ticks)
            self._begin_look(session)
            self._incarnations.admit(session)
            return session
        except BaseException:
            connection.close()
            raise

    def _check_schema(self, connection: Connection) -> None:
        if not schema.exists(connection):
            raise self._presence.missing()
        if schema.pending(connection):
            raise SchemaMismatch(f"{self.address} is not up to date; run `oncegate migrate`")
        self._refuse_damage(connection)
        self._presence.seen()

    def _begin_look(self, session: PostgresSession) -> bool:
        """Keeps the time and begins a moment for reading; False if this is not our ledger (any more)."""
        session.keep_time_apart()
        return session.begin_look() == schema.newest()

    def close(self) -> None:
        """Closes the sessions that are kept for further looks."""
        self._looks.close()

    def pending_migrations(self) -> list[Migration]:
        """Tells which migrations the database still needs."""
        connection = self.open_connection()
        try:
            return schema.pending(connection)
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        finally:
            connection.close()

    def migrate(self) -> list[Migration]:
        """Applies and returns the pending migrations."""
        connection = self.open_connection()
        try:
            applied = schema.apply_pending(connection)
            catalogue.refuse_damage(connection)
            eras.note_server(connection)
            ensure_partitions(connection, self._wall_ms())
            return applied
        except postgres.InsufficientPrivilege as error:
            raise StoreUnavailable(
                f"{first_line(error)}; let an owner of the schema run `oncegate migrate --print`"
            ) from error
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        finally:
            connection.close()

    def make_room(self, now_ms: int) -> list[str]:
        """Makes the months ahead and drops past ones that are empty."""
        connection = self.open_connection()
        try:
            made = [f"made {name}" for name in ensure_partitions(connection, now_ms)]
            return made + [f"dropped {name}" for name in drop_empty_months(connection, now_ms)]
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        finally:
            connection.close()

    def examine(self) -> list[Finding]:
        """Looks at the server, its settings and the schema, and rehearses a claim."""
        try:
            connection = self.open_connection()
        except StoreError as error:
            return [Finding(False, "ledger", self.address, str(error))]
        try:
            findings = [
                Finding(True, "ledger", self.address),
                *examine_server(connection, self.open_connection),
            ]
            if all(finding.ok for finding in findings if finding.what in ("pooler", "schema")):
                # Without a way to reopen it writes names inside the transaction too, which is undone.
                session = PostgresSession(connection, self._ticks)
                findings += examine_writing(connection, session, self._wall_ms())
            return findings
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        finally:
            connection.close()
