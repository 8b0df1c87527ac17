"""SQLite files and PostgreSQL databases as sides of a move, each with the trigger that fences it.

The trigger on `oncegate_entry` refuses keys that a database does not have (`fences`), whatever process
writes them and however long ago it read the list of shards. It stays when the move has ended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from oncegate.errors import StoreBusy
from oncegate.stores.sharded.sides import LedgerSide, Row, marks
from oncegate.stores.shared.homes import HOME, REFUSAL, REFUSAL_STATE

_OWN: Final = frozenset({"xact"})  # columns that a database fills by itself
_NUMBERS_AHEAD: Final = 100_000
_LOCK_WAIT_MS: Final = 50


class SqliteSide(LedgerSide):
    """A SQLite file."""

    _VIRTUAL = "lower(substr(hex(NEW.key), 1, 3))"
    _PHASE = f"(SELECT body FROM oncegate_document WHERE kind = '{HOME}' AND name = {_VIRTUAL})"
    _KNOWN = "EXISTS (SELECT 1 FROM oncegate_entry WHERE key = NEW.key)"
    _FENCE = (
        "CREATE TRIGGER IF NOT EXISTS oncegate_home_{name} BEFORE {event} ON oncegate_entry"
        f" WHEN NOT coalesce({_PHASE} = CAST('here' AS BLOB)"
        f" OR {_PHASE} = CAST('leaving' AS BLOB) AND {{but}}, 0)"
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
        found = self.rows("log", f"kind <> 2 AND entry IN ({marks(ids)})", ids)
        found += self.rows("log", f"kind = 2 AND position IN ({marks(last)})", last)
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


class PostgresSide(LedgerSide):
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
        """Waits a moment for those who write, not longer: all other writers wait behind it."""
        self.run("BEGIN")
        if alone:
            self.run(f"SET LOCAL lock_timeout = {_LOCK_WAIT_MS}")
            self.run("LOCK TABLE oncegate_entry IN SHARE ROW EXCLUSIVE MODE")

    def undo(self) -> None:
        """Leaves a transaction that is open."""
        if not self._connection.closed:
            self.run("ROLLBACK")

    def set_fence(self) -> None:
        """Makes the trigger, in the schema of the table; it needs no rights that programs do not have."""
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
        return self.rows("log", f"entry IN ({marks(ids)}) ORDER BY xact, position", ids)

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
    ELSIF phase = 'leaving' AND EXISTS (
        -- Locked: a row whose deletion is under way is waited for, and is not there then.
        SELECT FROM SCHEMA.oncegate_entry WHERE key = NEW.key FOR KEY SHARE
    ) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = '{REFUSAL_STATE}';
END
$$
"""
