"""Bodies by entry and their erasure on the embedded ledger. Mixed into the census."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from oncegate.store import EntryBodies, Erasure, LogKind
from oncegate.store.sealing import ERASED_COPY, ERASED_LABEL, ERASED_VALUE
from oncegate.stores.sqlite.names import Names

_BODIES: Final = """
SELECT entry.id, entry.surface, entry.received_at, CAST(payload.body AS BLOB), CAST(outcome.body AS BLOB)
FROM json_each(?) AS item
CROSS JOIN oncegate_entry AS entry ON entry.id = item.value
LEFT JOIN oncegate_payload AS payload ON payload.entry = entry.id
LEFT JOIN oncegate_outcome AS outcome ON outcome.entry = entry.id
"""
_IS_FINAL: Final = "SELECT 1 FROM oncegate_entry WHERE id = ? AND state IN (2, 3)"
_ERASE_PAYLOAD: Final = "DELETE FROM oncegate_payload WHERE entry = ?"
_ERASE_OUTCOME: Final = "UPDATE oncegate_outcome SET body = ?1 WHERE entry = ?2 AND body <> ?1"
_ERASE_LABEL: Final = "UPDATE oncegate_entry SET label = ?1, reason = NULL WHERE id = ?2 AND label <> ?1"
_BESIDE: Final = (
    "DELETE FROM oncegate_step WHERE entry = ?",
    "DELETE FROM oncegate_trace WHERE entry = ?",
    "UPDATE oncegate_repeat SET evidence = '' WHERE entry = ?",
    "UPDATE oncegate_content SET target = '' WHERE entry = ?",
)
# Of erased entries, by number. What an event led to names its key as the cause, in the context beside it.
_CAUSED: Final = """
substr(CAST(context AS TEXT), instr(CAST(context AS TEXT), '"cause":"') + 9, 48) IN (
    SELECT lower(hex(key)) FROM oncegate_entry WHERE id IN (SELECT value FROM json_each(?2)))
"""
_ARRIVED: Final = "id IN (SELECT delivery FROM oncegate_ack)"
_ERASE_CHANGES: Final = """
UPDATE oncegate_mutation
SET before = CASE WHEN before IS NOT NULL THEN ?1 END, after = CASE WHEN after IS NOT NULL THEN ?1 END
WHERE entry IN (SELECT value FROM json_each(?2))
"""
_ERASE_COPIES: Final = (
    f"UPDATE oncegate_feed SET body = ?1 WHERE {_CAUSED}",
    f"UPDATE oncegate_delivery SET payload = ?1 WHERE {_CAUSED} AND {_ARRIVED}",
)
_ERASE_NOTE: Final = "UPDATE oncegate_log SET note = ? WHERE position = ?"


class SqliteSealing:
    """Bodies, erase."""

    _connection: sqlite3.Connection
    _names: Names

    def _log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        raise NotImplementedError

    def bodies(self, entries: Sequence[int]) -> list[EntryBodies]:
        """Reads the bodies of entries."""
        text, rows = self._names.text, self._connection.execute(_BODIES, (json.dumps(list(entries)),))
        return [
            EntryBodies(entry, text(surface), at, body, outcome)
            for entry, surface, at, body, outcome in rows
        ]

    def erase(self, wanted: Erasure) -> list[int]:
        """Removes what final entries hold."""
        done = [entry for entry in wanted.entries if self._erase_one(entry, wanted)]
        if done and wanted.note is not None:
            numbers = json.dumps(done)
            self._connection.execute(_ERASE_CHANGES, (ERASED_VALUE, numbers))
            for sql in _ERASE_COPIES:
                self._connection.execute(sql, (ERASED_COPY, numbers))
        for position, note in wanted.notes:
            self._connection.execute(_ERASE_NOTE, (note, position))
        return done

    def _erase_one(self, entry: int, wanted: Erasure) -> bool:
        execute = self._connection.execute
        if execute(_IS_FINAL, (entry,)).fetchone() is None:
            return False
        removed = execute(_ERASE_PAYLOAD, (entry,)).rowcount
        removed += execute(_ERASE_OUTCOME, (wanted.outcome, entry)).rowcount
        removed += execute(_ERASE_LABEL, (ERASED_LABEL, entry)).rowcount
        if removed:
            for sql in _BESIDE:
                execute(sql, (entry,))
            if wanted.note is not None:
                self._log(entry, LogKind.ERASED, wanted.at_ms, wanted.actor, wanted.note)
        return bool(removed)
