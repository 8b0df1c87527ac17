"""The databases that `oncegate reshard` moves entries between: their fences, and rows read and written.

A side is one connection. Documents of the kind `home`, one for each virtual shard, say what the database has
of it: `here`; `leaving`, where claims may end and none may begin; `arrived`, a copy that is not used yet;
`gone`. A trigger on `oncegate_entry` refuses all other keys, whatever process writes them and however long
ago it read the list of shards. The fence stays when the move has ended. Rows are moved by the names of their
columns, so that both kinds of ledgers have one way: names get the numbers of the new database, times its
ledger time, entries new numbers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from oncegate.errors import StoreBusy, StoreCorrupt
from oncegate.stores.sharded.shard_map import Stamp
from oncegate.stores.shared.homes import HOME, REFUSAL, REFUSAL_STATE, STAMP

_PARTS: Final = ("open", "payload", "outcome", "step", "content", "trace", "lasting")
_NAMED: Final = frozenset({"surface", "tenant", "declared", "downstream", "actor"})
_TICKS: Final = frozenset(
    {"lease_until", "first_reserved", "retry_at", "tried_from", "last_call", "first_call"}
)
_OWN: Final = frozenset({"xact"})  # columns that a database fills by itself
_NOT_SHARDED: Final = ("lane", "delivery", "feed", "feed_key", "position")
_AT_ONCE: Final = 500
_NUMBERS_AHEAD: Final = 100_000

Row = dict[str, Any]


class Side:
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
        """The virtual shards with claims whose lease has not lapsed."""
        raise NotImplementedError

    def records_of(self, entries: Sequence[Row]) -> list[Row]:
        """The log records of entries, in order."""
        raise NotImplementedError

    def columns(self, table: str) -> list[str]:
        """The columns of a table that are moved; none where there is no such table."""
        raise NotImplementedError

    def phases(self) -> dict[str, bytes]:
        """What the database has of each virtual shard; empty before its first re-sharding."""
        found = self.run("SELECT name, body FROM oncegate_document WHERE kind = ?", HOME)
        return {name: bytes(body) for name, body in found}

    def declare(self, phases: dict[str, bytes], at_ms: int) -> None:
        """Says for the first time what the database has; what it said before stays."""
        self.run_many(
            "INSERT INTO oncegate_document (kind, name, version, body, changed_at)"
            " VALUES (?, ?, 1, ?, ?) ON CONFLICT (kind, name) DO NOTHING",
            [(HOME, name, phase, at_ms) for name, phase in phases.items()],
        )

    def set_phases(self, names: Sequence[str], phase: bytes, *only_from: bytes) -> int:
        """Changes what the database has of virtual shards; tells of how many it had one of `only_from`."""
        if not names:
            return 0
        found = self.run(
            "UPDATE oncegate_document SET body = ?, version = version + 1 WHERE kind = ?"
            f" AND name IN ({_marks(names)}) AND body IN ({_marks(only_from)}) RETURNING 1",
            *(phase, HOME, *names, *only_from),
        )
        return len(found)

    def write_stamp(self, stamp: Stamp, at_ms: int) -> None:
        """Says what the database is, in a transaction of its own."""
        self.run(
            "INSERT INTO oncegate_document (kind, name, version, body, changed_at) VALUES (?, ?, 1, ?, ?)"
            " ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body,"
            " version = oncegate_document.version + 1, changed_at = excluded.changed_at",
            *(*STAMP, str(stamp).encode(), at_ms),
        )

    def stamp(self) -> Stamp | None:
        """What the database is."""
        found = self.run("SELECT body FROM oncegate_document WHERE kind = ? AND name = ?", *STAMP)
        return Stamp.read(bytes(found[0][0]).decode()) if found else None

    def other_uses(self) -> list[str]:
        """Tables with rows that a sharded ledger has no use for: lanes and the feed."""
        return [
            table for table in _NOT_SHARDED if self.run(f"SELECT 1 FROM oncegate_{table} LIMIT 1")
        ]

    def entries_of(self, names: Sequence[str], lock: str = "") -> list[Row]:
        """The entries of virtual shards, by the beginning of their keys."""
        where, parameters = _within(names)
        return self._rows("entry", where + lock, parameters)

    def count_of(self, names: Sequence[str]) -> int:
        """How many entries virtual shards have."""
        where, parameters = _within(names)
        return int(self.run(f"SELECT count(*) FROM oncegate_entry WHERE {where}", *parameters)[0][0])

    def _rows(self, table: str, where: str, parameters: Sequence[Any]) -> list[Row]:
        columns = self.columns(table)
        found = self.run(f"SELECT {', '.join(columns)} FROM oncegate_{table} WHERE {where}", *parameters)
        return [dict(zip(columns, row, strict=True)) for row in found]

    def parts_of(self, table: str, entries: Sequence[Row]) -> list[Row]:
        """What a table has of entries."""
        return self._rows(table, *self._belongs(table, entries)) if self.columns(table) else []

    def _belongs(self, table: str, entries: Sequence[Row]) -> tuple[str, list[int]]:
        ids = [row["id"] for row in entries]
        if "month" not in self.columns(table):
            return f"entry IN ({_marks(ids)})", ids
        months = sorted({_month(row["received_at"]) for row in entries})
        return f"month IN ({_marks(months)}) AND entry IN ({_marks(ids)})", [*months, *ids]

    def names_of(self, numbers: Iterable[int]) -> dict[int, str]:
        """Names by their numbers."""
        wanted = sorted({number for number in numbers if number})
        found: dict[int, str] = {}
        for some in _batches(wanted):
            found |= dict(self.run(f"SELECT id, text FROM oncegate_name WHERE id IN ({_marks(some)})", *some))
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
            sql = f"INSERT INTO oncegate_{table} ({', '.join(rows[0])}) VALUES ({_marks(rows[0])})"
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
            self.run(f"DELETE FROM oncegate_entry WHERE id IN ({_marks(ids)})", *ids)


def copy_entries(source: Side, target: Side, entries: Sequence[Row], ticks_ahead: int) -> None:
    """Adds entries of one database to another; `ticks_ahead` is how far the other's ledger time is ahead."""
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


def _marks(values: Iterable[Any]) -> str:
    return ", ".join("?" for _ in values)


def _batches(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]


class SqliteSide(Side):
    """A SQLite file."""

    _VIRTUAL = "lower(substr(hex(NEW.key), 1, 3))"
    _PHASE = f"(SELECT body FROM oncegate_document WHERE kind = '{HOME}' AND name = {_VIRTUAL})"
    _KNOWN = "EXISTS (SELECT 1 FROM oncegate_entry WHERE key = NEW.key)"
    _FENCE = (
        "CREATE TRIGGER IF NOT EXISTS oncegate_home_{name} BEFORE {event} ON oncegate_entry WHEN NOT coalesce("
        f"{_PHASE} = CAST('here' AS BLOB) OR {_PHASE} = CAST('leaving' AS BLOB) AND {{but}}, 0)"
        f" BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    )

    def run(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Runs one statement."""
        try:
            return list(self._connection.execute(sql, parameters).fetchall())
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorname or "").startswith("SQLITE_BUSY"):
                raise StoreBusy("the file is being written; try again") from error
            raise

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs one statement for many rows."""
        self._connection.executemany(sql, rows)

    def add_records(self, rows: Sequence[Row]) -> dict[int, int]:
        """Numbers them after the last one."""
        ((last,),) = self.run("SELECT coalesce(max(position), 0) FROM oncegate_log")
        places = {row["position"]: place for place, row in enumerate(rows, last + 1)}
        self.insert("log", [{**row, "position": places[row["position"]]} for row in rows])
        return places

    def begin(self, *, alone: bool = False) -> None:
        """There is one writer in any case."""
        self.run("BEGIN IMMEDIATE")

    def undo(self) -> None:
        """Leaves a transaction that is open."""
        if self._connection.in_transaction:
            self.run("ROLLBACK")

    def set_fence(self) -> None:
        """Makes the triggers."""
        self.run(self._FENCE.format(name="new", event="INSERT", but=self._KNOWN))
        taken = "NOT (NEW.state = 1 AND NEW.fence <> OLD.fence)"
        self.run(self._FENCE.format(name="taken", event="UPDATE OF fence", but=taken))

    def highest(self) -> int:
        """The highest number of an entry or a claim."""
        sql = "SELECT max(coalesce(max(id), 0), coalesce(max(fence), 0),"
        sql += " (SELECT value FROM oncegate_meta WHERE name = 'floor')) FROM oncegate_entry"
        return int(self.run(sql)[0][0])

    def raise_numbers(self, above: int) -> None:
        """By the mark below which no number is given out."""
        self.run("UPDATE oncegate_meta SET value = max(value, ?) WHERE name = 'floor'", above)

    def numbers(self, count: int) -> list[int]:
        """New numbers; the mark is set above them."""
        first = self.highest() + 1
        self.raise_numbers(first + count)
        return list(range(first, first + count))

    def live(self, now_ticks: int) -> set[str]:
        """Reads all entries: these files are for tests."""
        sql = "SELECT lower(substr(hex(key), 1, 3)) FROM oncegate_entry WHERE state = 1 AND lease_until > ?"
        return {name for (name,) in self.run(sql, now_ticks)}

    def records_of(self, entries: Sequence[Row]) -> list[Row]:
        """A committed entry knows its last record, the others are in an index."""
        ids, last = [row["id"] for row in entries], [row["record"] for row in entries if row["record"]]
        found = self._rows("log", f"kind <> 2 AND entry IN ({_marks(ids)})", ids)
        found += self._rows("log", f"kind = 2 AND position IN ({_marks(last)})", last)
        return sorted(found, key=lambda row: int(row["position"]))

    def columns(self, table: str) -> list[str]:
        """As the file has them."""
        if table not in self._columns:
            found = self.run(f"SELECT name FROM pragma_table_info('oncegate_{table}')")
            self._columns[table] = [name for (name,) in found]
        return self._columns[table]

    def remove(self, entries: Sequence[Row]) -> None:
        """No number of a removed entry is given out again."""
        self.raise_numbers(self.highest())
        super().remove(entries)


class PostgresSide(Side):
    """A PostgreSQL database."""

    def run(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Runs one statement."""
        with _translated(sql):
            cursor = self._connection.execute(sql.replace("?", "%s").encode(), parameters or None)
            return list(cursor.fetchall()) if cursor.description else []

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs one statement for many rows, without waiting for each."""
        with _translated(sql), self._connection.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s").encode(), rows)

    def add_records(self, rows: Sequence[Row]) -> dict[int, int]:
        """The database numbers them."""
        self.insert("log", [{name: row[name] for name in row if name != "position"} for row in rows])
        return {}

    def begin(self, *, alone: bool = False) -> None:
        """Waits a second for those who write, not longer: others wait behind it."""
        self.run("BEGIN")
        if alone:
            self.run("SET LOCAL lock_timeout = 1000")
            self.run("LOCK TABLE oncegate_entry IN SHARE ROW EXCLUSIVE MODE")

    def undo(self) -> None:
        """Leaves a transaction that is open."""
        if not self._connection.closed:
            self.run("ROLLBACK")

    def set_fence(self) -> None:
        """Makes the trigger, in the schema of the table; it needs no more than rights to read it."""
        ((schema,),) = self.run(
            "SELECT quote_ident(nspname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE pg_class.oid = to_regclass('oncegate_entry')"
        )
        self.run(_FENCE_FUNCTION.replace("SCHEMA", schema))
        self.run("DROP TRIGGER IF EXISTS oncegate_home ON oncegate_entry")
        self.run(
            "CREATE TRIGGER oncegate_home BEFORE INSERT OR UPDATE OF fence ON oncegate_entry"
            f" FOR EACH ROW EXECUTE FUNCTION {schema}.oncegate_home()"
        )

    def highest(self) -> int:
        """Where the sequence is."""
        return int(self.run("SELECT last_value FROM oncegate_number")[0][0])

    def raise_numbers(self, above: int) -> None:
        """Far ahead: numbers that others are given meanwhile are below it."""
        if self.highest() < above:
            self.run("SELECT setval('oncegate_number', ?)", above + _NUMBERS_AHEAD)

    def numbers(self, count: int) -> list[int]:
        """Of the sequence."""
        found = self.run("SELECT nextval('oncegate_number') FROM generate_series(1, ?)", count)
        return [number for (number,) in found]

    def live(self, now_ticks: int) -> set[str]:
        """By the table of what is open."""
        sql = "SELECT DISTINCT left(encode(substring(key FROM 1 FOR 2), 'hex'), 3) FROM oncegate_open"
        sql += " JOIN oncegate_entry ON id = entry WHERE oncegate_open.state = 1 AND lease_until > ?"
        return {name for (name,) in self.run(sql, now_ticks)}

    def entries_of(self, names: Sequence[str], lock: str = " FOR UPDATE") -> list[Row]:
        """Locked until the transaction ends."""
        return super().entries_of(names, lock)

    def records_of(self, entries: Sequence[Row]) -> list[Row]:
        """By their index."""
        ids = [row["id"] for row in entries]
        return self._rows("log", f"entry IN ({_marks(ids)}) ORDER BY xact, position", ids)

    def columns(self, table: str) -> list[str]:
        """As the catalogue has them."""
        if table not in self._columns:
            found = self.run(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0"
                " AND NOT attisdropped ORDER BY attnum",
                f"oncegate_{table}",
            )
            self._columns[table] = [str(name) for (name,) in found if name not in _OWN]
        return self._columns[table]


@contextmanager
def _translated(sql: str) -> Iterator[None]:
    import psycopg

    from oncegate.stores.postgres.failures import translate

    try:
        yield
    except psycopg.Error as error:
        raise translate(error, committing=sql == "COMMIT") from error


_FENCE_FUNCTION: Final = f"""
CREATE OR REPLACE FUNCTION SCHEMA.oncegate_home() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    phase bytea;
BEGIN
    SELECT body INTO phase FROM SCHEMA.oncegate_document
    WHERE kind = '{HOME}' AND name = left(encode(substring(NEW.key FROM 1 FOR 2), 'hex'), 3);
    IF phase = 'here' THEN
        RETURN NEW;
    ELSIF phase = 'leaving' AND TG_OP = 'UPDATE' THEN
        IF NOT (NEW.state = 1 AND NEW.fence <> OLD.fence) THEN
            RETURN NEW;
        END IF;
    ELSIF phase = 'leaving' AND EXISTS (SELECT FROM SCHEMA.oncegate_entry WHERE key = NEW.key) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = '{REFUSAL_STATE}';
END
$$
"""
