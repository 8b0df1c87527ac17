"""The ledger behind `--url`, opened for commands that must leave it as it is.

`Store.connect` makes a ledger where there is none; a command that only looks must not. So reading goes
through a read-only connection that joins the ledger like a user's own transaction. Only this file of the
command line knows which store it has.
"""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from oncegate.clock import SystemClock
from oncegate.config import store_url
from oncegate.errors import BadUrl, SchemaMismatch, StoreError, StoreUnavailable
from oncegate.store import Migration, Session, Store
from oncegate.stores.sqlite import SqliteStore
from oncegate.stores.sqlite.files import translate
from oncegate.stores.sqlite.schema import pending
from oncegate.wiring import open_store

_BOOT: Final = "SELECT value FROM oncegate_meta WHERE name = 'boot'"
_SURFACES: Final = "SELECT DISTINCT surface FROM oncegate_entries ORDER BY surface"
_RECORD: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES ('schema', {number})"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value;"
)


def open_ledger(url: str | None) -> Store:
    """Makes the store behind an address; nothing is opened or created yet."""
    address = store_url(url)
    if "://" not in address:
        raise BadUrl(
            f"{address[:120]!r} is not a ledger's address; for a file write sqlite:///{address[:120]}"
        )
    if "%00" in address or "\0" in address:
        raise BadUrl("the address holds a NUL character, which no file name can")
    return open_store(address)


def command_for(command: str, url: str | None) -> str:
    """A command as the user would type it for the same ledger, for next steps."""
    return command if url is None else f"{command} --url {shlex.quote(url)}"


def file_of(store: Store) -> Path | None:
    """The file of an embedded ledger."""
    return store.path if isinstance(store, SqliteStore) else None


def exists(store: Store) -> bool:
    """Tells whether there is anything at the address; raises StoreUnavailable where nothing can be."""
    path = file_of(store)
    if path is None:
        return True
    try:
        if path.is_dir():
            raise StoreUnavailable(f"{path} is a folder; name a file in it, such as {path / 'oncegate.db'}")
        if path.exists():
            return True
        if not path.parent.is_dir():
            raise StoreUnavailable(f"there is no folder {path.parent}; create it first")
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be looked at: {error.strerror or error}") from error
    return False


def pending_migrations(store: Store) -> list[Migration]:
    """Tells which migrations the ledger needs, without changing so much as its journal mode."""
    if not exists(store) or not isinstance(store, SqliteStore):
        return store.pending_migrations()
    with _read_only(store.path) as connection:
        return pending(connection)


def migration_script(migration: Migration) -> str:
    """The SQL that brings a ledger one migration further when it is run by hand, its record included."""
    record = _RECORD.format(number=migration.number)
    head = f"-- migration {migration.number}: {migration.name}\nBEGIN IMMEDIATE;\n"
    return f"{head}{migration.sql.rstrip()}\n{record}\nCOMMIT;"


@contextmanager
def reading(store: Store, url: str | None) -> Iterator[Session]:
    """Opens an existing ledger for reading one consistent moment; creates and changes nothing."""
    create = command_for("oncegate migrate", url)
    if not exists(store):
        raise StoreUnavailable(f"there is no ledger at {store.address}; create it with: {create}")
    if not isinstance(store, SqliteStore):
        yield store.connect()
        return
    with _read_only(store.path) as connection:
        _check_schema(connection, store, create)
        session = store.join(connection)
        with session.unit():
            yield session


def _check_schema(connection: sqlite3.Connection, store: SqliteStore, create: str) -> None:
    missing = pending(connection)
    if missing and missing[0].number == 1:
        raise SchemaMismatch(f"{store.path} holds no ledger yet; create it with: {create}")
    if missing:
        raise SchemaMismatch(f"{store.path} has an older schema; bring it up to date with: {create}")


@contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    connection = None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        connection.execute("BEGIN")
        yield connection
    except sqlite3.Error as error:
        raise _explained(error, path) from error
    finally:
        if connection is not None:
            connection.close()


def _explained(error: sqlite3.Error, path: Path) -> StoreError:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
        return StoreUnavailable(
            f"{path} cannot be read by this user; reading a ledger takes write access to its folder,"
            " where SQLite keeps its lock files"
        )
    return translate(error, path)


def surfaces_in(session: Session) -> list[str]:
    """Names the surfaces that have entries."""
    return [str(name) for (name,) in session.execute(_SURFACES, ())]


def has_lapsed(session: Session, lease_until_ticks: int) -> bool:
    """Tells whether a lease is over; a lease from before a restart of the machine always is."""
    boots = [str(boot) for (boot,) in session.execute(_BOOT, ())]
    return boots != [SystemClock().boot_id()] or lease_until_ticks <= session.now_ticks()
