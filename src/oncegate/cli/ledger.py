"""Which ledger a command is about, and that ledger opened for commands that must leave it as it is.

One rule for all commands: `--url`, else ONCEGATE_URL, else the `url` of the service's settings in this
folder, else a file in it. So they look at the ledger that `oncegate serve` would use here.

`Store.connect` makes a ledger where there is none; a command that only looks must not. So reading goes
through a read-only connection that joins the ledger like a user's own transaction. Only this file of the
command line knows which store it has.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from oncegate.config import DEFAULT_URL, SETTINGS_FILE, URL_VARIABLE, LedgerAddress
from oncegate.errors import BadUrl, ConfigError, SchemaMismatch, StoreError, StoreUnavailable
from oncegate.model.ledger_addresses import masked_address
from oncegate.store import Facet, Session, Store, require
from oncegate.stores.sqlite import SqliteStore
from oncegate.wiring import open_store

_BOOT: Final = "SELECT value FROM oncegate_meta WHERE name = 'boot'"
_SURFACES: Final = "SELECT DISTINCT surface FROM oncegate_entries ORDER BY surface"


_project: ContextVar[LedgerAddress | None] = ContextVar("oncegate_project_ledger", default=None)


@contextmanager
def project_ledger(found: LedgerAddress) -> Iterator[None]:
    """Makes a framework's own database the ledger that commands are about, unless `--url` names one."""
    token = _project.set(found)
    try:
        yield
    finally:
        _project.reset(token)


def find_ledger(url: str | None, settings: Path | None = None) -> LedgerAddress:
    """Says which ledger is meant; `settings` is the file that was named, else the one of this folder.

    A file that is not needed is not read, so that a mistake in it can be got around.
    """
    if url:
        return LedgerAddress(url, "--url")
    if (project := _project.get()) is not None and settings is None:
        return project
    if given := os.environ.get(URL_VARIABLE):
        return LedgerAddress(given, URL_VARIABLE)
    if settings is None and not Path(SETTINGS_FILE).exists():
        return LedgerAddress(DEFAULT_URL, "default")
    from oncegate.service.config_loader import read_ledger_address

    return read_ledger_address(settings, os.environ)


def open_ledger(
    url: str | None, settings: Path | None = None, *, needs: Facet | None = Facet.REVIEW
) -> Store:
    """Makes the store behind an address; nothing is opened or created yet.

    `needs` is the facet that the command asks; None for one that every ledger can answer.
    """
    found = find_ledger(url, settings)
    try:
        store = _store_at(found.url)
    except BadUrl as error:
        if url:
            raise
        raise BadUrl(f"{found.source}: {error}") from None
    if needs is not None:
        require(store, needs, "commands such as this one")
    return store


def _store_at(address: str) -> Store:
    shown = masked_address(address)
    if "://" not in address:
        raise BadUrl(
            f"{shown!r} is not a ledger's address; for a file write sqlite:///{shown},"
            " for a server postgresql://user:password@host/database"
        )
    if "%00" in address or "\0" in address:
        raise BadUrl("the address holds a NUL character, which no file name can")
    return open_store(address)


def command_for(command: str, url: str | None) -> str:
    """A command as the user would type it for the same ledger, for next steps."""
    if url is None:
        return command
    return f"{command} --url {shlex.quote(masked_address(url))}"


def file_of(store: Store) -> Path | None:
    """The file of an embedded ledger."""
    return store.path if isinstance(store, SqliteStore) else None


def _named_by(found: LedgerAddress) -> str:
    return "" if found.source == "default" else f", which {found.source} names"


def table_rows(store: Store, url: str | None, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a user's table in the ledger's database, by column; raises ConfigError."""
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
    try:
        if isinstance(store, SqliteStore):
            yield from _file_rows(store.path, quoted)
        else:
            from oncegate.stores.postgres.tables import rows_of

            yield from rows_of(find_ledger(url).url, quoted)
    except (StoreError, sqlite3.Error) as error:
        raise ConfigError(f"the table {name[:80]!r} cannot be read: {error}") from None


def _file_rows(path: Path, table: str) -> Iterator[dict[str, Any]]:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        cursor = connection.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        yield from (dict(zip(names, row, strict=True)) for row in cursor)


@contextmanager
def reading(store: Store, url: str | None) -> Iterator[Session]:
    """Opens an existing ledger for reading one consistent moment; creates and changes nothing."""
    create = command_for("oncegate migrate", url)
    if not store.exists():
        named = "" if url else _named_by(find_ledger(url))
        never = "if there never was one, create it with"
        raise StoreUnavailable(f"there is no ledger at {store.address}{named}; {never}: {create}")
    missing = store.pending_migrations()
    if missing and missing[0].number == 1:
        raise SchemaMismatch(
            f"{store.address} holds no ledger; if it never held one, create it with: {create}"
        )
    if missing:
        raise SchemaMismatch(f"{store.address} has an older schema; bring it up to date with: {create}")
    with store.look() as session:
        yield session
