"""What pages read of the embedded ledger, and the notes that looking leaves. Mixed into the session."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from oncegate.store import Entry, EntryFilter, LogKind, LogRecord
from oncegate.store.browsing import NOTED, Note
from oncegate.stores.sqlite.claims import _ENTRY_COLUMNS

_BEFORE: Final = (
    "SELECT position, entry, kind, at, actor, note FROM oncegate_log{where} ORDER BY position DESC LIMIT ?"
)
_POSITION_MAX: Final = 2**63 - 1
_BY_PEOPLE: Final = "kind > 10"  # as the partial index says it


class SqliteBrowsing:
    """Oldest entries, log backwards, notes."""

    _connection: sqlite3.Connection

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        raise NotImplementedError

    def _record(self, row: tuple[Any, ...]) -> LogRecord:
        raise NotImplementedError

    def _conditions(self, wanted: EntryFilter) -> tuple[list[str], list[Any]]:
        raise NotImplementedError

    def _log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        raise NotImplementedError

    def oldest_entries(self, wanted: EntryFilter, after_id: int, limit: int) -> list[Entry]:
        """Lists entries, oldest first."""
        conditions, parameters = self._conditions(wanted)
        where = " AND ".join([*conditions, "id > ?"])
        sql = f"SELECT {_ENTRY_COLUMNS} FROM oncegate_entry WHERE {where} ORDER BY id LIMIT ?"
        rows = self._connection.execute(sql, (*parameters, after_id, limit))
        return [self._entry(row) for row in rows]

    def known_names(self, limit: int) -> list[str]:
        """Lists names."""
        rows = self._connection.execute("SELECT text FROM oncegate_name ORDER BY id LIMIT ?", (limit,))
        return [text for (text,) in rows.fetchall()]

    def log_before(self, before: int | None, limit: int, *, by_people: bool) -> list[LogRecord]:
        """Reads the log backwards."""
        conditions = [_BY_PEOPLE] if by_people else []
        conditions += [] if before is None else ["position < ?"]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        parameters = (limit,) if before is None else (min(before, _POSITION_MAX), limit)
        rows = self._connection.execute(_BEFORE.format(where=where), parameters).fetchall()
        return [self._record(row) for row in rows]

    def add_notes(self, notes: Sequence[Note]) -> list[bool]:
        """Adds notes about entries that are there."""
        return [self._add_note(note) for note in notes]

    def _add_note(self, note: Note) -> bool:
        if note.kind not in NOTED:
            raise ValueError(f"{note.kind.name} is not a note")
        known = "SELECT 1 FROM oncegate_entry WHERE id = ?"
        if note.entry_id and self._connection.execute(known, (note.entry_id,)).fetchone() is None:
            return False
        self._log(note.entry_id, note.kind, note.at_ms, note.actor, note.note)
        return True
