"""The ledger behind `--url`, opened for commands that must leave it as it is.

`Store.connect` makes a ledger where there is none; a command that only looks must not. So reading goes
through a read-only connection that joins the ledger like a user's own transaction. Only this file of the
command line knows which store it has.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from oncegate.config import URL_VARIABLE, store_url
from oncegate.errors import BadUrl, SchemaMismatch, StoreUnavailable
from oncegate.store import Session, Store
from oncegate.stores.sqlite import SqliteStore
from oncegate.wiring import open_store

_SECRET: Final = re.compile(r"(://[^:/@?]*:)[^?]*(?=@)|([?&](?:ssl)?password=)[^&]*")
_SETTINGS: Final = Path("oncegate.toml")
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
    return command if url is None else f"{command} --url {shlex.quote(_SECRET.sub(_hidden, url))}"


def _hidden(found: re.Match[str]) -> str:
    return f"{found.group(1) or found.group(2)}…"


def file_of(store: Store) -> Path | None:
    """The file of an embedded ledger."""
    return store.path if isinstance(store, SqliteStore) else None


def _ledger_of_service() -> str | None:
    """What to say where the service in this folder keeps its ledger elsewhere: few would think of it."""
    try:
        named = tomllib.loads(_SETTINGS.read_text("utf-8")).get("url")
    except (OSError, ValueError):
        return None
    if not isinstance(named, str) or URL_VARIABLE in os.environ:
        return None
    return f"the service's is named in {_SETTINGS}: add --url {shlex.quote(_SECRET.sub(_hidden, named))}"


@contextmanager
def reading(store: Store, url: str | None) -> Iterator[Session]:
    """Opens an existing ledger for reading one consistent moment; creates and changes nothing."""
    create = command_for("oncegate migrate", url)
    if not store.exists():
        another = _ledger_of_service() if url is None else None
        what_next = f"create it with: {create}" if another is None else another
        raise StoreUnavailable(f"there is no ledger at {store.address}; {what_next}")
    missing = store.pending_migrations()
    if missing and missing[0].number == 1:
        raise SchemaMismatch(f"{store.address} holds no ledger yet; create it with: {create}")
    if missing:
        raise SchemaMismatch(f"{store.address} has an older schema; bring it up to date with: {create}")
    with store.look() as session:
        yield session
