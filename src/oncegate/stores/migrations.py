"""Numbered migrations as both ledgers ship them: SQL files in a folder beside their schema."""

from __future__ import annotations

from importlib import resources

from oncegate.errors import SchemaMismatch
from oncegate.store import Migration


def read_migrations(package: str, record: str) -> list[Migration]:
    """Reads a store's migrations in order; `record` is its statement that one was applied."""
    folder = resources.files(package) / "migrations"
    files = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return [_read(name, (folder / name).read_text("utf-8"), record) for name in files]


def _read(name: str, sql: str, record: str) -> Migration:
    number, _, title = name.removesuffix(".sql").partition("_")
    return Migration(int(number), title.replace("_", " "), sql, record.format(number=int(number)))


def still_needed(known: list[Migration], version: int) -> list[Migration]:
    """Lists what a ledger of this version lacks; refuses one from the future."""
    if version > known[-1].number:
        raise SchemaMismatch(
            f"the ledger has schema {version}, this version of oncegate knows {known[-1].number}; "
            "install the newer oncegate that wrote it"
        )
    return [migration for migration in known if migration.number > version]
