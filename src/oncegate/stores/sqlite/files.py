"""Opening SQLite files, and turning SQLite's errors into ours.

Only this file knows pragmas and SQLite's error names. Must never lower durability silently: a file that
cannot be put into WAL with full synchronisation is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from weakref import WeakSet

from oncegate.clock import SystemClock
from oncegate.errors import (
    DurabilityRefused,
    PartUnavailable,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from oncegate.stores.shared.homes import REFUSAL

BUSY_WAIT_MS: Final = 5_000  # longer than any checkpoint of ours; a stuck writer is an error, not a hang
WAL_RETRY_MS: Final = 20
CACHE_KIB: Final = 16 * 1024
# 16 MiB, four times SQLite's own: keys are random, so that most pages of their index change again before
# a checkpoint this late, and are copied once; whoever commits waits for fewer checkpoints. Not where the
# ledger is smaller: until the log has its size each commit makes it longer, which takes a disk longer.
CHECKPOINT_PAGES: Final = 4_000
CHECKPOINT_PAGES_OF_SMALL: Final = 1_000
SQLITE_VERSION_MIN: Final = (3, 35, 0)  # RETURNING
OWNER_ONLY: Final = 0o600
SIDE_FILES: Final = ("-wal", "-shm", "-journal")
SYNCHRONOUS_LEVELS: Final = {"NORMAL": 1, "FULL": 2, "EXTRA": 3}


class LedgerConnection(sqlite3.Connection):
    """A connection that is known to be open, so that a fork can tell.

    SQLite keeps its locks in memory that a child inherits: a child that was forked while a connection to a
    file was open would write to that file without holding a lock of its own. It must not write at all.
    """

    def __init__(self, database: str | Path, *arguments: Any, **keywords: Any) -> None:
        self.file = _file_of(str(database))
        if any(inherited.file == self.file for inherited in _inherited):
            raise StoreUnavailable(
                "this process was forked while its ledger was open; start a new process instead"
            )
        super().__init__(database, *arguments, **keywords)
        _open.add(self)

    def close(self) -> None:
        """Closes it, and forgets it."""
        _open.discard(self)
        super().close()


def _file_of(database: str) -> str:
    if database.startswith("file:"):
        database = unquote(database.removeprefix("file://").partition("?")[0])
    return str(Path(database).resolve())


_open: WeakSet[LedgerConnection] = WeakSet()
_inherited: list[LedgerConnection] = []  # kept for ever: a child must not close what is its parent's


def _note_inherited() -> None:
    _inherited.extend(_open)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_inherited)


def create_private(path: Path) -> None:
    """Creates a file that only its owner can read, if there is none: a ledger holds signing secrets.

    SQLite gives its side files (-wal, -shm, -journal) the mode of the file itself. An existing file keeps
    its mode, which an operator may have chosen; `oncegate doctor` names one that is too wide.
    """
    try:
        descriptor = os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, OWNER_ONLY)
    except OSError:
        return  # it is there, or SQLite says why it cannot be
    try:
        os.fchmod(descriptor, OWNER_ONLY)  # whatever the umask takes away
    finally:
        os.close(descriptor)


def identity_of(file: str | None) -> tuple[int, int] | None:
    """What tells a file from another one under the same name; None where there is none."""
    if file is None:
        return None
    try:
        found = os.stat(file)  # noqa: PTH116  every unit asks, and a Path costs twice as much
    except OSError:
        return None
    return found.st_dev, found.st_ino


def wide_files(path: Path) -> list[Path]:
    """The files of a ledger that others than their owner can read or write."""
    return [
        file for file in (path, *(path.with_name(path.name + end) for end in SIDE_FILES)) if _is_wide(file)
    ]


def _is_wide(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & 0o077)
    except OSError:
        return False  # a side file that is not there, or has just gone


def open_connection(path: Path, synchronous: str) -> sqlite3.Connection:
    """Opens a file for one session at a time, in WAL mode, and checks that the settings took."""
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        raise StoreUnavailable(f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or newer is needed")
    create_private(path)
    with translated(path):
        connection = sqlite3.connect(
            path,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_WAIT_MS / 1000,
            factory=LedgerConnection,
        )
        try:
            _configure(connection, path, synchronous)
        except BaseException:
            connection.close()
            raise
    return connection


def _configure(connection: sqlite3.Connection, path: Path, synchronous: str) -> None:
    mode = _switch_to_wal(connection)
    if mode != "wal":
        raise DurabilityRefused(
            f"{path} cannot use write-ahead logging (it answered {mode!r}); use a local disk"
        )
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    late = CHECKPOINT_PAGES if pages >= CHECKPOINT_PAGES else CHECKPOINT_PAGES_OF_SMALL
    connection.execute(f"PRAGMA wal_autocheckpoint = {late}")
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    if level != SYNCHRONOUS_LEVELS[synchronous]:
        raise DurabilityRefused(f"{path} did not accept synchronous={synchronous}")


def _switch_to_wal(connection: sqlite3.Connection) -> str:
    """Switches to WAL; SQLite does not wait by itself while another process is at it."""
    clock = SystemClock()
    connection.execute("PRAGMA busy_timeout = 0")
    for _ in range(BUSY_WAIT_MS // WAL_RETRY_MS):
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if not (error.sqlite_errorname or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise
            clock.pause(WAL_RETRY_MS / 1000)
        else:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_WAIT_MS}")
            return str(mode)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    return str(mode)


def damaged(what: str) -> StoreCorrupt:
    """The file can be read, but not what the ledger notes about itself."""
    return StoreCorrupt(f"the ledger is damaged: {what}; restore it from a copy, do not delete its keys")


def stored_number(name: str, value: object) -> int:
    """A number that the ledger notes about itself."""
    try:
        return int(str(value))
    except ValueError:
        raise damaged(f"its {name} is {str(value)[:40]!r}, not a number") from None


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Runs a block and raises our errors instead of SQLite's."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error


_STORES_OWN: Final = (
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_CORRUPT",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_LOCKED",
    "SQLITE_NOTADB",
    "SQLITE_READONLY",
)


MOVED_PREFIX: Final = "this ledger"  # how the error of a fenced ledger begins


def is_the_stores(error: Exception) -> bool:
    """Tells an error of the file or its disk from one of a user's statement."""
    name = getattr(error, "sqlite_errorname", None) or ""
    return isinstance(error, sqlite3.Error) and name.startswith(_STORES_OWN)


def _why_not(path: Path) -> str:
    if path.is_dir():
        return "it is a folder; name a file in it"
    if path.exists():
        return "check its permissions"
    return "check that its folder exists and is writable"


def translate(error: sqlite3.Error, path: Path) -> StoreError:
    """Finds our error for one of SQLite's, with the cause and the next step."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(f"{path} is being written by another process; try again in a moment")
    if name == "SQLITE_FULL":
        return StoreFull(f"{path}: no space left on its disk; free some and try again")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreCorrupt(
            f"{path} is damaged or is not a SQLite file; restore it from a copy, do not delete its keys"
        )
    if name == "SQLITE_CONSTRAINT_TRIGGER" and str(error) == REFUSAL:
        return PartUnavailable(REFUSAL)
    if name == "SQLITE_CONSTRAINT_TRIGGER" and str(error).startswith(MOVED_PREFIX):
        return StoreUnavailable(str(error))
    if name.startswith("SQLITE_READONLY"):
        beside = f"and those of {path.name}-wal and {path.name}-shm beside it"
        return StoreUnavailable(f"{path} cannot be written; check its owner and permissions, {beside}")
    if name.startswith("SQLITE_CANTOPEN"):
        return StoreUnavailable(f"{path} cannot be opened; {_why_not(path)}")
    return StoreUnavailable(f"{path}: {error}")
