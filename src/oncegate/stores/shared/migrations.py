"""Numbered migrations as both ledgers ship them: SQL files in a folder beside their schema."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, Final

from oncegate.errors import SchemaMismatch
from oncegate.store import Migration

MOVED: Final = "moved"  # the row of oncegate_meta that says why nothing may use this ledger
READ_VERSION: Final = (
    f"SELECT name, value FROM oncegate_meta WHERE name IN ('schema_version', 'schema', '{MOVED}')"
)
_DROPPED: Final = re.compile(r"^DROP (?:TABLE|VIEW|SEQUENCE|INDEX) (oncegate_\w+)", re.MULTILINE)
_MADE: Final = re.compile(r"^CREATE (?:TABLE|VIEW|SEQUENCE|(?:UNIQUE )?INDEX) (oncegate_\w+)", re.MULTILINE)


def read_migrations(package: str, record: str) -> list[Migration]:
    """Reads a store's migrations in order; `record` is its statement that one was applied."""
    return list(_shipped(package, record))


@cache
def _shipped(package: str, record: str) -> tuple[Migration, ...]:
    """Once a process: every connection asks for them, and the files do not change while it runs."""
    folder = resources.files(package) / "migrations"
    files = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return tuple(_read(name, (folder / name).read_text("utf-8"), record) for name in files)


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


def version_recorded(rows: Iterable[tuple[Any, ...]]) -> int:
    """The number of a ledger's schema, from the rows of READ_VERSION; 0 without a record.

    Development versions recorded a number of another sequence of migrations, under the name `schema`.
    """
    recorded = dict(rows)
    if MOVED in recorded:
        raise SchemaMismatch(f"this ledger {recorded[MOVED]}")
    if "schema_version" in recorded:
        return _number(recorded["schema_version"])
    if "schema" in recorded:
        raise SchemaMismatch(
            "the ledger was made by a development version before 0.1.0; this version can neither read nor "
            "upgrade it: go on with the version that made it, or create a new ledger at another address, "
            "which knows none of its events"
        )
    return 0


def _number(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise SchemaMismatch(
            f"oncegate_meta records {str(value)[:40]!r} as the schema, which is no number; "
            "restore oncegate_meta from a backup"
        ) from None


def made_by(migrations: list[Migration]) -> dict[str, Migration]:
    """Names of tables, views, sequences and indexes that are new, each with the migration that makes it."""
    again = {name for migration in migrations for name in _DROPPED.findall(migration.sql)}
    made = {name: migration for migration in migrations for name in _MADE.findall(migration.sql)}
    return {name: migration for name, migration in made.items() if name not in again}


def contradiction(version: int, name: str, needed: list[Migration]) -> SchemaMismatch:
    """The recorded number is lower than what is there: applying the rest could only fail."""
    recorded = f"records schema {version}" if version else "has no record of its schema"
    newest = needed[-1]
    return SchemaMismatch(
        f"the ledger {recorded} in oncegate_meta, but has {name} of migration "
        f"{made_by(needed)[name].number:04} already: the record was changed or lost, or a migration was "
        "run by hand in part; restore oncegate_meta from a backup, or, if you know that every "
        f"migration up to {newest.number:04} was applied, run: {newest.record} and then `oncegate doctor`, "
        "which compares everything"
    )
