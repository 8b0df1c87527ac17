"""PostgreSQL as a store: connects with limits, migrates, checks durability, examines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
from psycopg import errors as postgres

from oncegate.clock import Clock
from oncegate.errors import (
    BadUrl,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from oncegate.store import Capabilities, Durability, Finding, Joined, Migration
from oncegate.stores.postgres import schema
from oncegate.stores.postgres.arrays import register
from oncegate.stores.postgres.failures import first_line, refuse_durability, translate
from oncegate.stores.postgres.session import PostgresSession

SERVER_VERSION_MIN: Final = 140000
WRITERS: Final = 2  # one batch is prepared while the other commits; more did not help
CONNECT_WAIT_SECONDS: Final = 10
STATEMENT_WAIT_MS: Final = 25_000  # below the caller's own limit, so that the server decides first
_LIMITS: Final[dict[str, Any]] = {
    "connect_timeout": CONNECT_WAIT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_DURABLE: Final = frozenset({"on", "local", "remote_write", "remote_apply"})

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
        _check_url(url)

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
        )

    @property
    def address(self) -> str:
        """The address without its password."""
        parts = urlsplit(self._url)
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
        user = f"{parts.username}@" if parts.username else ""
        return f"postgresql://{user}{host}{parts.path}"

    def connect(self) -> PostgresSession:
        """Opens a session; an empty database becomes a ledger."""
        connection = self._open()
        try:
            self._check_durability(connection)
            schema.apply_pending(connection)
            return self._session(connection)
        except psycopg.Error as error:
            connection.close()
            raise translate(error, committing=False) from error
        except BaseException:
            connection.close()
            raise

    def _session(self, connection: Connection) -> PostgresSession:
        return PostgresSession(connection, None if self._clock is None else self._clock.ticks_ms)

    def _open(self) -> Connection:
        try:
            connection = psycopg.connect(
                self._url,
                autocommit=True,
                options=f"-c statement_timeout={STATEMENT_WAIT_MS}",
                application_name="oncegate",
                **_LIMITS,
            )
        except psycopg.OperationalError as error:
            raise _refused(self.address, error) from error
        except psycopg.Error as error:
            raise BadUrl(f"{self.address}: {first_line(error)}") from error
        if connection.info.server_version < SERVER_VERSION_MIN:
            version = connection.info.server_version // 10000
            connection.close()
            raise StoreUnavailable(f"the server is PostgreSQL {version}; version 14 or newer is needed")
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

    def join(self, transaction: object) -> Joined:
        """Wraps a user's open transaction."""
        raise UsageError(f"tx= is a {type(transaction).__name__}, which cannot be joined here")

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
        """Reads one moment of an existing ledger; creates and changes nothing."""
        connection = self._open()
        try:
            if schema.schema_version(connection) == 0:
                raise StoreUnavailable(f"there is no ledger at {self.address}; run `oncegate migrate`")
            if schema.pending(connection):
                raise SchemaMismatch(f"{self.address} is not up to date; run `oncegate migrate`")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield self._session(connection)
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
            return schema.apply_pending(connection)
        except postgres.InsufficientPrivilege as error:
            raise StoreUnavailable(
                f"{first_line(error)}; let an owner of the schema run `oncegate migrate --print`"
            ) from error
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
            return [
                Finding(True, "ledger", self.address),
                Finding(True, "server", f"PostgreSQL {connection.info.server_version / 10000:.4g}"),
                *self._examine_settings(connection),
            ]
        finally:
            connection.close()

    def _examine_settings(self, connection: Connection) -> Iterator[Finding]:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            (value,) = connection.execute(f"SHOW {setting}").fetchone() or ("",)
            safe = value in _DURABLE
            step = "" if safe else f"set {setting}=on: acknowledged commits can be lost"
            yield Finding(safe, setting, value, step)
        yield _examine_replication(connection)


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


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("postgresql", "postgres") and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise BadUrl("a PostgreSQL address looks like postgresql://user:password@host:5432/database")


def _refused(address: str, error: psycopg.Error) -> StoreUnavailable:
    text = first_line(error)
    if "password" in text or "authentication" in text:
        step = "check user and password"
    elif "does not exist" in text:
        step = "create the database or the user first"
    else:
        step = "check that the server runs and that host and port are right"
    return StoreUnavailable(f"{address} cannot be reached ({text}); {step}")
