"""PostgreSQL as a store: connects with limits, migrates, checks durability, examines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import errors as postgres
from psycopg.conninfo import conninfo_to_dict

from oncegate import suspension
from oncegate.clock import Clock, SystemClock
from oncegate.errors import (
    BadUrl,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
)
from oncegate.store import Capabilities, Durability, Finding, Joined, Migration
from oncegate.stores.postgres import schema, statements
from oncegate.stores.postgres.arrays import register
from oncegate.stores.postgres.doubts import Doubts
from oncegate.stores.postgres.failures import first_line, refuse_durability, translate
from oncegate.stores.postgres.joins import join
from oncegate.stores.postgres.limits import LimitedConnection
from oncegate.stores.postgres.partitions import drop_empty_months, ensure_partitions
from oncegate.stores.postgres.scripts import Facts
from oncegate.stores.postgres.session import PostgresSession

SERVER_VERSION_MIN: Final = 140000
WRITERS: Final = 2  # one batch is prepared while the other commits; more did not help
CONNECT_WAIT_SECONDS: Final = 10
STATEMENT_WAIT_MS: Final = 25_000  # below the caller's own limit, so that the server decides first
_DEFAULTS: Final[dict[str, Any]] = {
    "application_name": "oncegate",
    "connect_timeout": CONNECT_WAIT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_DURABLE: Final = frozenset({"on", "local", "remote_write", "remote_apply"})

# Tables, views and sequences that every ledger has; partitions come and go.
_MADE: Final = re.compile(
    r"^CREATE (?:TABLE|VIEW|SEQUENCE) (oncegate_\w+)(?! PARTITION OF)\b", re.MULTILINE
)
_RESTORE: Final = "restore the database from a backup: no migration brings lost records back"
_ABSENT: Final = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL"
_LOG_AHEAD: Final = """
SELECT (SELECT xact FROM oncegate_log ORDER BY xact DESC, position DESC LIMIT 1)
    >= pg_snapshot_xmax(pg_current_snapshot())
"""

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
        self._given = _taken_apart(url)
        self._facts = Facts(None if clock is None else clock.ticks_ms)

    @property
    def capabilities(self) -> Capabilities:
        """What this ledger does, and promises at the server's settings."""
        return Capabilities(
            name="postgres",
            durability=self._durability,
            writers_max=WRITERS,
            audit_trail=True,
            business_writes=True,
            one_writer=False,
            is_local=False,
            gives_way=suspension.AVAILABLE,
        )

    @property
    def address(self) -> str:
        """The address without its password."""
        given = self._given
        user = f"{given['user']}@" if "user" in given else ""
        return f"postgresql://{user}{_places(given)}/{given.get('dbname', '')}"

    def connect(self) -> PostgresSession:
        """Opens a session; an empty database becomes a ledger."""
        connection = self._open_durable()
        try:
            # Not where a session reopens: it may be in a transaction that stands in the way.
            ensure_partitions(connection, self._wall_ms())
            return PostgresSession(connection, self._ticks, reopen=self._open_durable, doubts=self._doubts)
        except psycopg.Error as error:
            connection.close()
            raise translate(error, committing=False) from error
        except BaseException:
            connection.close()
            raise

    def _open_durable(self) -> Connection:
        """A connection to an up-to-date ledger on a server that keeps what it acknowledges."""
        connection = self._open()
        try:
            self._check_durability(connection)
            schema.apply_pending(connection)
            return connection
        except psycopg.Error as error:
            connection.close()
            raise translate(error, committing=False) from error
        except BaseException:
            connection.close()
            raise

    def _wall_ms(self) -> int:
        return (self._clock or SystemClock()).wall_ms()

    @property
    def _ticks(self) -> Callable[[], int] | None:
        return None if self._clock is None else self._clock.ticks_ms

    def _open(self) -> Connection:
        # Plans are made while tables are small, and kept: they must look rows up all the same.
        options = f"-c statement_timeout={STATEMENT_WAIT_MS} -c enable_seqscan=off"
        options = f"{options} {self._given.get('options', '')}"
        settings = {**_DEFAULTS, **self._given, "options": options.strip()}
        try:
            connection = LimitedConnection.connect(autocommit=True, **settings)
        except psycopg.OperationalError as error:
            raise _refused(self.address, error) from error
        except psycopg.Error as error:
            raise BadUrl(f"{self.address}: {first_line(error)}") from error
        if connection.info.server_version < SERVER_VERSION_MIN:
            version = connection.info.server_version // 10000
            connection.close()
            needed = SERVER_VERSION_MIN // 10000
            raise StoreUnavailable(
                f"the server at {self.address} is PostgreSQL {version}; {needed} or newer is needed"
            )
        register(connection)
        connection.prepare_threshold = 1
        return connection

    def _check_durability(self, connection: Connection) -> None:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            (value,) = connection.execute(f"SHOW {setting}").fetchone() or ("",)
            if value not in _DURABLE:
                if not self._accept_loss:
                    raise refuse_durability(setting, value)
                self._durability = Durability.PROCESS_CRASH

    def knows(self, names: Sequence[str]) -> bool:
        """Tells whether the ledger's id and the numbers of these names are known."""
        return self._facts.knows(names)

    def learn(self, names: Sequence[str]) -> None:
        """Reads the ledger's id and the numbers of names; names that are new are written."""
        session = self.connect()
        try:
            self._facts.keep(*session.introduce(names))
        finally:
            session.close()

    def join(self, transaction: object) -> Joined:
        """Wraps a user's open transaction."""
        return join(transaction, self._facts)

    def exists(self) -> bool:
        """Tells whether the database holds a ledger; a server that cannot be reached says why not."""
        connection = self._open()
        try:
            return schema.schema_version(connection) > 0
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        finally:
            connection.close()

    @contextmanager
    def look(self) -> Iterator[PostgresSession]:
        """Reads one moment of an existing ledger; creates and changes nothing but the time it keeps."""
        connection = self._open()
        try:
            if schema.schema_version(connection) == 0:
                raise StoreUnavailable(f"there is no ledger at {self.address}; run `oncegate migrate`")
            if schema.pending(connection):
                raise SchemaMismatch(f"{self.address} is not up to date; run `oncegate migrate`")
            _keep_time(connection)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield PostgresSession(connection, self._ticks)
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        finally:
            connection.close()

    def pending_migrations(self) -> list[Migration]:
        """Tells which migrations the database still needs."""
        connection = self._open()
        try:
            return schema.pending(connection)
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        finally:
            connection.close()

    def migrate(self) -> list[Migration]:
        """Applies and returns the pending migrations."""
        connection = self._open()
        try:
            applied = schema.apply_pending(connection)
            lacking = _lacking(connection)
            if lacking:
                raise SchemaMismatch(f"{self.address} has lost {', '.join(lacking)}; {_RESTORE}")
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
        connection = self._open()
        try:
            made = [f"made {name}" for name in ensure_partitions(connection, now_ms)]
            return made + [f"dropped {name}" for name in drop_empty_months(connection, now_ms)]
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        finally:
            connection.close()

    def examine(self) -> list[Finding]:
        """Looks at the server, its settings and the schema."""
        try:
            connection = self._open()
        except StoreError as error:
            return [Finding(False, "ledger", self.address, str(error))]
        try:
            version = connection.info.server_version
            return [
                Finding(True, "ledger", self.address),
                Finding(True, "server", f"PostgreSQL {version // 10000}.{version % 10000}"),
                *_examine_pooler(connection),
                *self._examine_settings(connection),
                _examine_schema(connection),
                *_examine_log(connection),
            ]
        except psycopg.Error as error:
            raise translate(error, committing=False) from error
        finally:
            connection.close()

    def _examine_settings(self, connection: Connection) -> Iterator[Finding]:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            (value,) = connection.execute(f"SHOW {setting}").fetchone() or ("",)
            safe = value in _DURABLE
            step = "" if safe else f"set {setting}=on: acknowledged commits can be lost"
            yield Finding(safe, setting, value, step)
        yield _examine_replication(connection)


def _keep_time(connection: Connection) -> None:
    """Caretakers that only look keep the time going too, where they may write at all."""
    (may_write,) = connection.execute(statements.MAY_KEEP_TIME).fetchone() or (False,)
    if may_write:
        connection.execute(statements.KEEP_TIME)


def _examine_pooler(connection: Connection) -> Iterator[Finding]:
    """A pooler tells its clients process numbers of its own."""
    (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    if pid != connection.info.backend_pid:
        yield Finding(True, "pooler", "one is in between: it must be in session mode (docs/postgresql.md)")


def _examine_replication(connection: Connection) -> Finding:
    """A standby that is not synchronous may lack the last commits when it is promoted."""
    (names,) = connection.execute("SHOW synchronous_standby_names").fetchone() or ("",)
    (standbys,) = connection.execute("SELECT count(*) FROM pg_stat_replication").fetchone() or (0,)
    if not standbys:
        return Finding(True, "replication", "no standby is connected")
    if names:
        return Finding(True, "replication", f"{standbys} standbys, synchronous: {names}")
    return Finding(
        False,
        "replication",
        f"{standbys} standbys, none synchronous",
        "a promoted standby may lack the last commits, and their events would run again: set "
        "synchronous_standby_names",
    )


def _examine_schema(connection: Connection) -> Finding:
    """What a migration made and somebody removed."""
    lacking = _lacking(connection)
    version = schema.schema_version(connection)
    if lacking:
        return Finding(False, "schema", f"{version}, but without {', '.join(lacking)}", _RESTORE)
    return Finding(True, "schema", f"{version}")


def _lacking(connection: Connection) -> list[str]:
    made = {name for migration in schema.all_migrations() for name in _MADE.findall(migration.sql)}
    rows = connection.execute(_ABSENT, (sorted(made),)).fetchall()
    return [str(name) for (name,) in rows]


def _examine_log(connection: Connection) -> Iterator[Finding]:
    """A ledger that was copied to a server with younger transaction numbers: its log would seem empty."""
    if _lacking(connection):
        return
    (ahead,) = connection.execute(_LOG_AHEAD).fetchone() or (False,)
    if ahead:
        yield Finding(
            False,
            "log",
            "records are numbered beyond this server's transactions",
            "the ledger was restored from a dump: readers of the log stop before those records; copy whole "
            "servers (pg_basebackup, pg_upgrade) instead, which keep the numbers",
        )


def _taken_apart(url: str) -> dict[str, Any]:
    """The address as the driver understands it; an error never shows what may be a password."""
    shape = "a PostgreSQL address looks like postgresql://user:password@host:5432/database"
    if url.partition("://")[0] not in ("postgresql", "postgres"):
        raise BadUrl(shape)
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        text = first_line(error)
        told = f" ({text})" if "URI query parameter" in text else ""
        raise BadUrl(f"{shape}{told}; write @ : / # % in a password as %40 %3A %2F %23 %25") from None
    ports = [port for port in str(given.get("port", "")).split(",") if port]
    if not all(port.isascii() and port.isdigit() and 0 < int(port) < 65536 for port in ports):
        raise BadUrl(f"{shape}; a port is a number from 1 to 65535")
    if "@" in str(given.get("dbname", "")):
        raise BadUrl(f"{shape}; write @ : / # % in a password as %40 %3A %2F %23 %25")
    return {name: value for name, value in given.items() if value is not None}


def _places(given: dict[str, Any]) -> str:
    """Hosts and ports for people; a folder of Unix sockets is left out."""
    hosts = [host for host in str(given.get("host", "")).split(",") if not host.startswith("/")]
    ports = str(given.get("port", "")).split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    return ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))


def _refused(address: str, error: psycopg.Error) -> StoreUnavailable:
    text = first_line(error)
    if "password" in text or "authentication" in text:
        step = "check user and password"
    elif "does not exist" in text:
        step = "create the database or the user first"
    else:
        step = "check that the server runs and that host and port are right"
    return StoreUnavailable(f"{address} cannot be reached ({text}); {step}")
