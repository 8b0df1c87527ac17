"""Lists, counts and the log of the embedded ledger, for people, pages and workers.

Mixed into the session. Must only read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from msgspec.json import encode

from oncegate.errors import ConfigError
from oncegate.model.parking import Parked
from oncegate.model.states import State
from oncegate.store import Entry, EntryDetail, EntryFilter, LogRecord, StepRecord
from oncegate.store.log import kind_of
from oncegate.stores.shared.observations import SQLITE_KIND as KIND
from oncegate.stores.sqlite.claims import _ENTRY_COLUMNS
from oncegate.stores.sqlite.names import Names
from oncegate.stores.sqlite.open_entries import open_entries
from oncegate.stores.sqlite.sealing import SqliteSealing

_LOG_COLUMNS: Final = "position, entry, kind, at, actor, note"
# The log's index leaves out the common case: a committed entry knows its own record.
_LOG_OF: Final = (
    f"SELECT {_LOG_COLUMNS} FROM oncegate_log WHERE entry = ? AND kind <> 2"
    f" UNION ALL SELECT {_LOG_COLUMNS} FROM oncegate_log WHERE entry = ? AND kind = 2"
    " AND position = (SELECT record FROM oncegate_entry WHERE id = ?) ORDER BY position"
)
_PARKED: Final = (
    "SELECT count(*), coalesce(sum(length(body)), 0) FROM oncegate_entry INDEXED BY oncegate_entry_open"
    " LEFT JOIN oncegate_payload ON entry = id"
    " WHERE state NOT IN (2, 3) AND (state <> 1 OR fence <> id) AND state IN (5, 6, 7)"
    " AND surface = ?1 AND (?3 OR tenant = ?2)"
)
_LAPSED: Final = "state = ?1 AND lease_until <= ?2"
_DUE_FIRST: Final = " ORDER BY 2, id LIMIT ?3"

_RESOURCE: Final = (
    "(instr((SELECT body FROM oncegate_outcome WHERE entry = oncegate_entry.id), ?) > 0 OR EXISTS"
    " (SELECT 1 FROM oncegate_step WHERE entry = oncegate_entry.id AND resource = ?))"
)


class SqliteCensus(SqliteSealing):
    """Entries, details, counts, stranded claims, log."""

    _connection: sqlite3.Connection
    _names: Names

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads entries by key; claims know how."""
        raise NotImplementedError

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        raise NotImplementedError

    def _steps(self, entry: int) -> tuple[StepRecord, ...]:
        raise NotImplementedError

    def _outcome(self, entry: int) -> bytes | None:
        raise NotImplementedError

    def entries(self, wanted: EntryFilter, before_id: int | None, limit: int) -> list[Entry]:
        """Lists entries, newest first."""
        conditions, parameters = self._conditions(wanted)
        if before_id is not None:
            conditions.append("id < ?")
            parameters.append(before_id)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sql = f"SELECT {_ENTRY_COLUMNS} FROM oncegate_entry{where} ORDER BY id DESC LIMIT ?"
        return [self._entry(row) for row in self._connection.execute(sql, (*parameters, limit))]

    def _conditions(self, wanted: EntryFilter) -> tuple[list[str], list[Any]]:
        conditions: list[str] = []
        parameters: list[Any] = []
        if wanted.states:
            conditions.append(_in_states(wanted.states))
        for column, name in (("surface", wanted.surface), ("tenant", wanted.tenant)):
            if name is not None:
                conditions.append(f"{column} = ?")
                parameters.append(self._names.find(name) or -1)
        if wanted.key_prefix:
            low, high = _digest_range(wanted.key_prefix)
            conditions.append("key >= ? AND key <= ?")
            parameters += [low, high]
        if wanted.label_contains:
            conditions.append("instr(label, ?) > 0")
            parameters.append(wanted.label_contains)
        if wanted.reason_contains:
            conditions.append("instr(reason, ?) > 0")
            parameters.append(wanted.reason_contains)
        if wanted.cause is not None:
            conditions.append(f"{KIND} = ?")
            parameters.append(wanted.cause)
        if wanted.resource is not None:
            conditions.append(_RESOURCE)
            parameters += [encode(wanted.resource), wanted.resource]
        for condition, limit in (
            ("settled_at < ?", wanted.settled_before_ms),
            ("received_at < ?", wanted.received_before_ms),
            ("received_at > ?", wanted.received_after_ms),
            ("id > ?", wanted.above_id),
        ):
            if limit is not None:
                conditions.append(condition)
                parameters.append(limit)
        return conditions, parameters

    def _entry_numbered(self, number: int) -> Entry | None:
        sql = f"SELECT {_ENTRY_COLUMNS} FROM oncegate_entry WHERE id = ?"
        row = self._connection.execute(sql, (number,)).fetchone()
        return None if row is None else self._entry(row)

    def detail(self, entry_id: int) -> EntryDetail | None:
        """Reads one entry with all that belongs to it."""
        entry = self._entry_numbered(entry_id)
        if entry is None:
            return None
        body = self._connection.execute(
            "SELECT body FROM oncegate_payload WHERE entry = ?", (entry_id,)
        ).fetchone()
        records = self._connection.execute(_LOG_OF, (entry_id, entry_id, entry_id))
        return EntryDetail(
            entry,
            None if body is None else bytes(body[0]),
            self._outcome(entry_id),
            self._steps(entry_id),
            tuple(self._record(record) for record in records.fetchall()),
        )

    def details(self, keys: Sequence[bytes]) -> list[EntryDetail | None]:
        """Reads entries by key with all that belongs to them."""
        return [None if entry is None else self.detail(entry.entry_id) for entry in self.read(keys)]

    def parked(self, surface: str, tenant: str | None) -> Parked:
        """Counts along the index of what is open."""
        number = None if tenant is None else self._names.find(tenant)
        wanted = (self._names.find(surface), number, tenant is None)
        return Parked(*self._connection.execute(_PARKED, wanted).fetchone())

    def counts(self) -> dict[State, int]:
        """Counts entries by state."""
        rows = self._connection.execute("SELECT state, count(*) FROM oncegate_entry GROUP BY state")
        return {State(state): count for state, count in rows}

    def surfaces(self) -> list[str]:
        """Names the surfaces that have entries."""
        found = self._connection.execute(
            "SELECT text FROM oncegate_name AS name"
            " WHERE EXISTS (SELECT 1 FROM oncegate_entry WHERE surface = name.id) ORDER BY text"
        )
        return [str(text) for (text,) in found]

    def stranded(self, limit: int, surfaces: Sequence[str] | None = None) -> list[EntryDetail]:
        """Finds claims whose lease has expired and failures that may be tried again, first due first."""
        if surfaces is not None and not surfaces:
            return []
        now, numbers = self.now_ticks(), [self._names.find(name) or -1 for name in surfaces or ()]
        among = "" if surfaces is None else f" AND surface IN ({', '.join(map(str, numbers))})"
        sql = open_entries("id, max(lease_until, coalesce(retry_at, 0))", _LAPSED + among) + _DUE_FIRST
        found: list[EntryDetail] = []
        for state in (State.IN_FLIGHT, State.RETRYABLE):
            rows = self._connection.execute(sql, (state.value, now, limit)).fetchall()
            found += [detail for number, _ in rows if (detail := self.detail(number)) is not None]
        return found[:limit]

    def read_log(self, after: int, limit: int) -> list[LogRecord]:
        """Reads records after a position."""
        sql = f"SELECT {_LOG_COLUMNS} FROM oncegate_log WHERE position > ? ORDER BY position LIMIT ?"
        rows = self._connection.execute(sql, (after, limit)).fetchall()
        return [self._record(row) for row in rows]

    def _record(self, row: tuple[Any, ...]) -> LogRecord:
        position, entry, kind, at, actor, note = row
        return LogRecord(position, entry, kind_of(kind), at, self._names.text(actor), note)


def _in_states(states: Sequence[State]) -> str:
    """What is not final is a small part of a ledger: found as such, whatever the ledger holds."""
    among = f"state IN ({', '.join(str(state.value) for state in states)})"
    if any(state.is_final for state in states):
        return among
    return f"id IN ({open_entries('id', among)})"


def _digest_range(prefix: str) -> tuple[bytes, bytes]:
    try:
        return bytes.fromhex(prefix.ljust(48, "0")), bytes.fromhex(prefix.ljust(48, "f"))
    except ValueError:
        raise ConfigError(f"{prefix[:60]!r} is not the beginning of a key") from None
