"""Reading an embedded ledger without touching it: no file made, no schema or journal mode changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncegate.errors import StoreError, StoreUnavailable
from oncegate.stores.sqlite.files import LedgerConnection, translate


def file_exists(path: Path) -> bool:
    """Tells whether there is a file; raises StoreUnavailable where there cannot be one."""
    try:
        if path.is_dir():
            raise StoreUnavailable(f"{path} is a folder; name a file in it, such as {path / 'oncegate.db'}")
        if path.exists():
            return True
        if not path.parent.is_dir():
            raise StoreUnavailable(f"there is no folder {path.parent}; create it first")
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"{path} cannot be looked at: {error}") from error
    return False


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a file for reading one consistent moment."""
    connection = None
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, factory=LedgerConnection
        )
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
            f"{path} cannot be opened; check its permissions, and those of its folder: SQLite keeps its"
            " lock files there, also for reading"
        )
    return translate(error, path)
