"""A downstream that keeps its record on disk: what was done stays done, whoever is killed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS done (n INTEGER PRIMARY KEY, what TEXT NOT NULL, key TEXT UNIQUE)"
)
_ACT: Final = "INSERT INTO done (what, key) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"


@contextlib.contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """A file of the user's own, open for a moment; each statement commits by itself."""
    with contextlib.closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
        yield connection


class Outside:
    """Does what it is asked to, once for each key; a call without a key is done every time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "outside.db"
        with database(self._path) as connection:
            connection.execute(_TABLE)

    def act(self, what: str, idempotency_key: str = "") -> dict[str, str]:
        """Does it."""
        with database(self._path) as connection:
            connection.execute(_ACT, (what, idempotency_key or None))
        return {"id": f"done-{what}"}

    def done(self) -> list[str]:
        """Everything that was done, in order."""
        with database(self._path) as connection:
            return [what for (what,) in connection.execute("SELECT what FROM done ORDER BY n")]
