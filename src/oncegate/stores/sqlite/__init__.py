"""The embedded ledger: one SQLite file in WAL mode, written by one session at a time."""

from oncegate.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
