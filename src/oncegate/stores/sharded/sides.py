"""Databases that `oncegate reshard` moves entries between: rows read from one and written to another.

A side is one connection. Rows are moved by the names of their columns, so that both kinds of ledgers have
one way: names get the numbers of the new database, times its ledger time, entries new numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from oncegate.errors import StoreCorrupt

_PARTS: Final = ("open", "payload", "outcome", "step", "content", "trace", "lasting")
_NAMED: Final = frozenset({"surface", "tenant", "declared", "downstream", "actor"})
_TICKS: Final = frozenset(
    {"lease_until", "first_reserved", "retry_at", "tried_from", "last_call", "first_call"}
)
_AT_ONCE: Final = 500

Row = dict[str, Any]


class LedgerSide:
    """One database, by a connection of its own; statements are written with `?`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._columns: dict[str, list[str]] = {}

    def run(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Runs one statement."""
        raise NotImplementedError

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs one statement for many rows."""
        raise NotImplementedError

    def begin(self, *, alone: bool = False) -> None:
        """Begins a transaction; `alone` waits until no other transaction writes entries."""
        raise NotImplementedError

    def commit(self) -> None:
        """Commits."""
        self.run("COMMIT")

    def undo(self) -> None:
        """Leaves a transaction that is open."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the connection; an open transaction is undone."""
        self._connection.close()

    def set_fence(self) -> None:
        """Makes the trigger."""
        raise NotImplementedError

    def highest(self) -> int:
        """The highest number that the database has given out."""
        raise NotImplementedError

    def raise_numbers(self, above: int) -> None:
        """Gives out only numbers above this one from now on."""
        raise NotImplementedError

    def numbers(self, count: int) -> list[int]:
        """New numbers."""
        raise NotImplementedError

    def live(self, now_ticks: int) -> set[str]:
        """The virtual shards with claims under way."""
        raise NotImplementedError

    def records_of(self, entries: Sequence[Row]) -> list[Row]:
        """The log records of entries, in order."""
        raise NotImplementedError

    def columns(self, table: str) -> list[str]:
        """The columns of a table that are moved; none where there is no such table."""
        raise NotImplementedError

    def entries_of(self, names: Sequence[str], lock: str = "") -> list[Row]:
        """The entries of virtual shards, by the beginning of their keys."""
        where, parameters = _within(names)
        return self.rows("entry", where + lock, parameters)

    def count_of(self, names: Sequence[str]) -> int:
        """Counts the entries of virtual shards."""
        where, parameters = _within(names)
        return int(self.run(f"SELECT count(*) FROM oncegate_entry WHERE {where}", *parameters)[0][0])

    def rows(self, table: str, where: str, parameters: Sequence[Any]) -> list[Row]:
        columns = self.columns(table)
        found = self.run(f"SELECT {', '.join(columns)} FROM oncegate_{table} WHERE {where}", *parameters)
        return [dict(zip(columns, row, strict=True)) for row in found]

    def parts_of(self, table: str, entries: Sequence[Row]) -> list[Row]:
        """What a table has of entries."""
        return self.rows(table, *self._belongs(table, entries)) if self.columns(table) else []

    def _belongs(self, table: str, entries: Sequence[Row]) -> tuple[str, list[int]]:
        ids = [row["id"] for row in entries]
        if "month" not in self.columns(table):
            return f"entry IN ({marks(ids)})", ids
        months = sorted({_month(row["received_at"]) for row in entries})
        return f"month IN ({marks(months)}) AND entry IN ({marks(ids)})", [*months, *ids]

    def names_of(self, numbers: Iterable[int]) -> dict[int, str]:
        """Names by their numbers."""
        wanted = sorted({number for number in numbers if number})
        found: dict[int, str] = {}
        for some in _batches(wanted):
            found |= dict(
                self.run(f"SELECT id, text FROM oncegate_name WHERE id IN ({marks(some)})", *some)
            )
        return found

    def numbers_of(self, names: Iterable[str]) -> dict[str, int]:
        """Names as numbers of this database; new ones are added, and none counts as unused."""
        found = {}
        for name in sorted(set(names)):
            self.run("INSERT INTO oncegate_name (text) VALUES (?) ON CONFLICT (text) DO NOTHING", name)
            self.run("UPDATE oncegate_name SET unused_since = NULL WHERE text = ?", name)
            ((found[name],),) = self.run("SELECT id FROM oncegate_name WHERE text = ?", name)
        return found

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        """Adds rows, which all have the same columns."""
        if rows:
            sql = f"INSERT INTO oncegate_{table} ({', '.join(rows[0])}) VALUES ({marks(rows[0])})"
            self.run_many(sql, [tuple(row.values()) for row in rows])

    def add_records(self, rows: Sequence[Row]) -> dict[int, int]:
        """Adds records to the log; gives their new positions where an entry keeps one."""
        raise NotImplementedError

    def remove(self, entries: Sequence[Row]) -> None:
        """Removes entries with all that belongs to them; the log keeps its records, as when pruning."""
        for some in _batches(entries):
            for table in filter(self.columns, _PARTS):
                where, parameters = self._belongs(table, some)
                self.run(f"DELETE FROM oncegate_{table} WHERE {where}", *parameters)
            ids = [row["id"] for row in some]
            self.run(f"DELETE FROM oncegate_entry WHERE id IN ({marks(ids)})", *ids)


def copy_entries(source: LedgerSide, target: LedgerSide, entries: Sequence[Row], ticks_ahead: int) -> None:
    """Adds entries to another database; `ticks_ahead` is how far its ledger time is ahead."""
    for some in _batches(entries):
        parts = {table: source.parts_of(table, some) for table in _PARTS if table != "lasting"}
        log = source.records_of(some)
        rows = [*some, *log, *(row for found in parts.values() for row in found)]
        known = source.names_of(row[name] for row in rows for name in _NAMED & row.keys())
        renamed = target.numbers_of(known.values())
        numbers = {number: renamed[text] for number, text in known.items()}
        fresh = iter(target.numbers(2 * len(some)))
        moved = {row["id"]: (next(fresh), next(fresh)) for row in some}
        places = target.add_records([_converted(row, numbers, 0, moved) for row in log])
        added = [_converted(row, numbers, ticks_ahead, moved) for row in some]
        for row, new in zip(some, added, strict=True):
            new["id"], later = moved[row["id"]]
            new["fence"] = new["id"] if row["fence"] == row["id"] else later
            if "record" in new:
                new["record"] = places.get(row["record"])
        target.insert("entry", added)
        for table, found in parts.items():
            target.insert(table, [_converted(row, numbers, ticks_ahead, moved) for row in found])


def _converted(row: Row, numbers: dict[int, int], ahead: int, moved: dict[int, tuple[int, int]]) -> Row:
    new = dict(row)
    for name in _NAMED & row.keys():
        if row[name]:
            if row[name] not in numbers:
                raise StoreCorrupt(f"the name {row[name]} of an entry is missing; nothing was moved")
            new[name] = numbers[row[name]]
    for name in _TICKS & row.keys():
        if row[name] not in (None, -1):  # -1 says that it never ran
            new[name] = row[name] + ahead  # below 0 in a younger ledger: no age may shrink
    if "entry" in row:
        new["entry"] = moved[row["entry"]][0]
    return new


def _within(names: Sequence[str]) -> tuple[str, list[bytes]]:
    """What the keys of virtual shards lie between; keys are longer than two bytes."""
    parameters: list[bytes] = []
    for number in (int(name, 16) << 4 for name in names):
        parameters += [number.to_bytes(2), (number + 15).to_bytes(2) + b"\xff" * 64]
    return f"({' OR '.join('key BETWEEN ? AND ?' for _ in names)})", parameters


def _month(at_ms: int) -> int:
    found = datetime.fromtimestamp(at_ms // 1000, UTC)
    return found.year * 100 + found.month


def marks(values: Iterable[Any]) -> str:
    """A question mark for each value."""
    return ", ".join("?" for _ in values)


def _batches(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]
