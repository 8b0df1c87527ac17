"""What pages read of the PostgreSQL ledger, and the notes that looking leaves. Mixed into the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.store import Entry, EntryFilter, LogRecord
from oncegate.store.browsing import NOTED, Note
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.eras import Eras, parted
from oncegate.stores.postgres.names import Names

# Ordered by the column itself: a bare `xact` would mean the converted one, which has no index.
_BEFORE: Final = """
SELECT log.xact::text::numeric, position, entry, kind, at, actor, note FROM oncegate_log AS log{where}
ORDER BY log.xact DESC, log.position DESC LIMIT %s
"""
_BY_PEOPLE: Final = "kind > 10"  # as the partial index says it
_SEEN: Final = "log.xact < pg_snapshot_xmax(pg_current_snapshot())"


class PostgresBrowsing:
    """Oldest entries, log backwards, notes."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _entries(self, rows: list[tuple[Any, ...]]) -> list[Entry]:
        raise NotImplementedError

    def _records(self, rows: list[tuple[Any, ...]]) -> list[LogRecord]:
        raise NotImplementedError

    def _eras(self) -> Eras:
        raise NotImplementedError

    def _conditions(self, wanted: EntryFilter) -> tuple[list[str], list[Any]]:
        raise NotImplementedError

    def oldest_entries(self, wanted: EntryFilter, after_id: int, limit: int) -> list[Entry]:
        """Lists entries, oldest first."""
        conditions, parameters = self._conditions(wanted)
        where = " AND ".join([*conditions, "open.entry > %s"])
        sql = f"{statements.OPEN_ENTRY} WHERE {where} ORDER BY open.entry LIMIT %s"
        return self._entries(self._query(sql, (*parameters, after_id, limit)))

    def known_names(self, limit: int) -> list[str]:
        """Lists names."""
        rows = self._query("SELECT text FROM oncegate_name ORDER BY id LIMIT %s", (limit,))
        return [text for (text,) in rows]

    def log_before(self, before: int | None, limit: int, *, by_people: bool) -> list[LogRecord]:
        """Reads the log backwards, the last era first."""
        eras = self._eras()
        era, xact, number = (eras.last, "", 0) if before is None else parted(before)
        rows = self._log_back(eras, era, (xact, number) if before is not None else None, limit, by_people)
        while len(rows) < limit and era:
            era -= 1
            rows += self._log_back(eras, era, None, limit - len(rows), by_people)
        return self._records(rows)

    def _log_back(
        self, eras: Eras, era: int, before: tuple[str, int] | None, limit: int, by_people: bool
    ) -> list[tuple[Any, ...]]:
        conditions = [_BY_PEOPLE] if by_people else []
        if before is not None:
            conditions.append("(log.xact, log.position) < (%s::text::xid8, %s)")
        if eras.last:
            begin, end = eras.records(era)
            conditions.append(f"position > {begin} AND position <= {end}")
        if era and era == eras.last:  # spares the way through earlier eras' higher numbers
            conditions.append(_SEEN)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._query(_BEFORE.format(where=where), (*(before or ()), limit))

    def add_notes(self, notes: Sequence[Note]) -> list[bool]:
        """Adds notes about entries that are there."""
        self._begin()
        return [self._add_note(note) for note in notes]

    def _add_note(self, note: Note) -> bool:
        if note.kind not in NOTED:
            raise ValueError(f"{note.kind.name} is not a note")
        known = "SELECT 1 FROM oncegate_entry WHERE id = %s"
        if note.entry_id and not self._query(known, (note.entry_id,)):
            return False
        actor = self._names.learn({note.actor})[note.actor]
        self._query(statements.LOG, (note.entry_id, note.kind.value, note.at_ms, actor, note.note))
        return True
