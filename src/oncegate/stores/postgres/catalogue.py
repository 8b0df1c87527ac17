"""What a whole ledger has in the server's catalogue, and what one has lost of it. Reads only.

`catalogue.txt` lists what the migrations make; a test compares it with a ledger that was just made. Without
the list a lost index or default would be met as the server's own words on every event.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as postgres

from oncegate.errors import SchemaMismatch
from oncegate.stores.postgres import schema

RESTORE: Final = "restore the database from a backup: no migration brings lost records back"
SHOWN_MAX: Final = 3
_ROWS: Final = """
SELECT 'row', 'oncegate_ticks', '' FROM oncegate_ticks
UNION ALL
SELECT 'row', 'oncegate_meta', name FROM oncegate_meta WHERE name IN ('ledger_id', 'feed_secret')
"""
_ROWS_MADE: Final = frozenset(
    {
        ("row", "oncegate_ticks", ""),
        ("row", "oncegate_meta", "ledger_id"),
        ("row", "oncegate_meta", "feed_secret"),
    }
)
_NEW_TIME: Final = (
    "stop every process of this ledger, then let its time begin again: "
    "INSERT INTO oncegate_ticks (ticks, wall) SELECT now, now FROM oncegate_clock() AS now"
)

Connection = psycopg.Connection[tuple[Any, ...]]
Thing = tuple[str, str, str]  # its kind, its name, and how it is


class Lost(NamedTuple):
    """Something that a migration made and that was removed or changed; `stops`: events fail without it."""

    what: str
    next_step: str
    stops: bool


def lost_in(connection: Connection) -> list[Lost]:
    """Compares a ledger of the newest schema with what the migrations make; the worst first."""
    found = things_in(connection)
    lost = made() - found
    if not lost:
        lost = _lost_rows(connection)
    tables = {name for kind, name, _ in lost if kind in ("table", "view")}
    told = [_told(thing, found) for thing in sorted(lost) if not _is_part_of(tables, thing)]
    return sorted(told, key=lambda one: not one.stops)


def _lost_rows(connection: Connection) -> frozenset[Thing]:
    try:
        return _ROWS_MADE - {_thing(*row) for row in connection.execute(_ROWS).fetchall()}
    except postgres.InsufficientPrivilege:  # whoever only reads views is not told about tables
        return frozenset()


def refuse_damage(connection: Connection) -> None:
    """Raises SchemaMismatch where events would fail for something that is missing."""
    stopping = [one for one in lost_in(connection) if one.stops]
    if stopping:
        raise SchemaMismatch(f"the ledger has lost {names_of(stopping)}; {stopping[0].next_step}")


def names_of(lost: list[Lost]) -> str:
    """The first few by name, the others by their number."""
    more = f" and {len(lost) - SHOWN_MAX} more" if len(lost) > SHOWN_MAX else ""
    return ", ".join(one.what for one in lost[:SHOWN_MAX]) + more


def things_in(connection: Connection) -> set[Thing]:
    """Everything of a ledger that the server's catalogue has."""
    return {_thing(*row) for row in connection.execute(_shipped("catalogue.sql").encode()).fetchall()}


@cache
def made() -> frozenset[Thing]:
    """Everything that the migrations make."""
    lines = [line.split(" ", 2) for line in _shipped("catalogue.txt").splitlines()]
    return frozenset((line[0], line[1], line[2] if len(line) > 2 else "") for line in lines)


@cache
def _shipped(name: str) -> str:
    return (resources.files("oncegate.stores.postgres") / name).read_text("utf-8")


def _thing(kind: str, name: str, detail: str) -> Thing:
    return kind, name, detail


def _is_part_of(tables: set[str], thing: Thing) -> bool:
    """Whether something went with its table, which says it all."""
    kind, name, detail = thing
    if kind == "column":
        return name.partition(".")[0] in tables
    owner = re.search(r"\bon (oncegate_\w+)", detail)
    return owner is not None and owner.group(1) in tables


def _told(thing: Thing, found: set[Thing]) -> Lost:
    kind, name, detail = thing
    now = next((other for k, n, other in found if (k, n) == (kind, name)), None)
    if now is not None:
        what = f"{kind} {name} as it was ({detail}; it is {now or 'another'})"
    else:
        what = f"{kind} {name} ({detail})" if detail else f"{kind} {name}"
    return Lost(what, _step_for(thing, now), _stops(thing, now))


def _stops(thing: Thing, now: str | None) -> bool:
    kind, _, detail = thing
    if kind == "index":
        return detail.startswith(("unique", "primary"))
    if kind == "column":
        return detail != f"{now} not null"
    return kind not in ("view", "check")


def _step_for(thing: Thing, now: str | None) -> str:
    kind, name, detail = thing
    if kind == "row" and name == "oncegate_ticks":
        return _NEW_TIME
    if kind == "index":
        return f"make it again: {_making(name, detail)}"
    if kind == "column" and now is not None:
        return _altering(name, detail, now)
    return RESTORE


def _making(name: str, detail: str) -> str:
    """The statement that makes an index."""
    for migration in schema.all_migrations():
        found = re.search(rf"^CREATE (?:UNIQUE )?INDEX {name} [^;]*;", migration.sql, re.MULTILINE)
        if found:
            return " ".join(found.group().split())
    unique, _, place = detail.partition("on ")
    if unique.startswith("primary"):
        table, _, columns = place.partition(" ")
        return f"ALTER TABLE {table} ADD CONSTRAINT {name} PRIMARY KEY {columns};"
    return f"CREATE {unique.upper()}INDEX {name} ON {place};"


def _altering(name: str, detail: str, now: str) -> str:
    """The statement that gives a column its default back, or refuses NULL in it again."""
    table, _, column = name.partition(".")
    kind, _, default = detail.partition(" default ")
    if default and now == kind:
        return f"give it back: ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {default};"
    if detail == f"{now} not null":
        return f"ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL;"
    return RESTORE
