"""Real databases for trials: the ledger and the user's tables in one, fresh for every trial.

Tables that are given as SQL are made once, in a template that is copied. A function is called for each
database: it may make tables too, and tells the user's code where the database is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from oncegate.errors import ConfigError
from oncegate.testing.clock import ManualClock
from oncegate.wiring import open_store

_MEMORY: Final = Path("/dev/shm")
_MEMORY_FREE_MIN: Final = 256 * 2**20
KINDS: Final = ("sqlite", "postgres")

Setup = str | Callable[["Database"], object]
Setups = Setup | Sequence[Setup]


class Database:
    """One database of a trial, with the ledger and the user's tables in it."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file."""
        return self.url.startswith("sqlite:")

    @property
    def path(self) -> Path:
        """The file of a SQLite database."""
        if not self.is_sqlite:
            raise ConfigError("a PostgreSQL database has no path; use database.url")
        return Path(self.url.removeprefix("sqlite:///"))

    def sqlalchemy_url(self, driver: str | None = None) -> str:
        """The address for `create_engine`; `driver` is psycopg (default) or asyncpg on PostgreSQL."""
        if self.is_sqlite:
            return f"sqlite:///{self.path}"
        return self.url.replace("postgresql:", f"postgresql+{driver or 'psycopg'}:", 1)

    def connect(self) -> Any:
        """A connection of sqlite3 or psycopg, in autocommit mode."""
        if self.is_sqlite:
            return sqlite3.connect(self.path, isolation_level=None)
        import psycopg

        return psycopg.connect(self.url, autocommit=True)

    def execute(self, sql: str) -> None:
        """Runs statements, several at once if need be."""
        with contextlib.closing(self.connect()) as connection:
            if self.is_sqlite:
                connection.executescript(sql)
            else:
                connection.execute(sql.encode())

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What a query finds."""
        with contextlib.closing(self.connect()) as connection:
            found = connection.execute(sql if self.is_sqlite else sql.encode()).fetchall()
        return [tuple(row) for row in found]

    def is_held(self) -> bool:
        """Whether a transaction has written and is still open: others would wait for it."""
        with contextlib.closing(self.connect()) as connection:
            if not self.is_sqlite:
                asked = (
                    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                    " AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL"
                )
                return bool(connection.execute(asked).fetchone())
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            connection.execute("ROLLBACK")
            return False


def listed(setup: Setups) -> list[Setup]:
    """One setup or several, as a list."""
    return [setup] if isinstance(setup, str) or callable(setup) else list(setup)


def apply_setup(database: Database, setup: Setups) -> None:
    """Makes the user's tables, and tells the user's code where they are."""
    for one in listed(setup):
        if isinstance(one, str):
            database.execute(one)
        else:
            one(database)


class Server(Protocol):
    """A PostgreSQL server on which databases can be made."""

    def new_database(self) -> str:
        """Makes an empty database and returns its address."""


class Databases:
    """Fresh databases of one kind, all with the same tables; close it to remove them."""

    def __init__(self, kind: str, setup: Setups, server: Callable[[], Server] | None = None) -> None:
        if kind not in KINDS:
            raise ConfigError(f"database={kind!r} cannot be used; choose sqlite or postgres")
        self._sql = [one for one in listed(setup) if isinstance(one, str)]
        self._functions = [one for one in listed(setup) if not isinstance(one, str)]
        self._server = server
        self._stack = contextlib.ExitStack()
        self._numbers = count(1)
        self._fresh = self._sqlite if kind == "sqlite" else self._postgres
        self._template: Database | None = None
        self._image = b""

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Database]:
        """A database with empty tables, until the block ends."""
        with self._fresh() as database:
            apply_setup(database, self._functions)
            yield database

    def close(self) -> None:
        """Removes everything."""
        self._stack.close()
        self._template = None

    @contextlib.contextmanager
    def _sqlite(self) -> Iterator[Database]:
        if self._template is None:
            folder = tempfile.TemporaryDirectory(prefix="oncegate-chaos-", dir=_place())
            self._folder = Path(self._stack.enter_context(folder))
            self._template = self._prepared(Database(f"sqlite:///{self._folder}/template.db"))
            self._image = self._template.path.read_bytes()
        path = self._folder / f"trial-{next(self._numbers)}.db"
        path.write_bytes(self._image)
        try:
            yield Database(f"sqlite:///{path}")
        finally:
            for one in self._folder.glob(f"{path.name}*"):
                one.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _postgres(self) -> Iterator[Database]:
        from oncegate.testing.postgres import create_database, drop_database

        if self._template is None:
            self._template = self._prepared(Database(self._started().new_database()))
        parts = urlsplit(self._template.url)
        name = f"{parts.path.removeprefix('/')}_{next(self._numbers)}"
        admin = urlunsplit(parts._replace(path="/postgres"))
        create_database(admin, name, template=parts.path.removeprefix("/"))
        try:
            yield Database(urlunsplit(parts._replace(path=f"/{name}")))
        finally:
            drop_database(admin, name)

    def _started(self) -> Server:
        if self._server is not None:
            return self._server()
        from oncegate.testing.postgres import TEST_URL_VARIABLE, GivenServer, PostgresServer

        given = os.environ.get(TEST_URL_VARIABLE)
        return GivenServer(given) if given else self._stack.enter_context(PostgresServer(in_memory=True))

    def _prepared(self, database: Database) -> Database:
        open_store(database.url, clock=ManualClock()).connect().close()
        apply_setup(database, self._sql)
        if database.is_sqlite:  # all of it in one file, which is what is copied
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return database


def _place() -> Path | None:
    """In memory where there is room: a trial is no test of the disk."""
    has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _MEMORY_FREE_MIN
    return _MEMORY if has_room else None
