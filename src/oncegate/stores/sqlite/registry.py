"""Named documents on the embedded ledger. Mixed into the session.

A removed document stays as a row without a body, so that its versions go on counting.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from oncegate.store import Document, DocumentChange, LogKind

_INSERT: Final = (
    "INSERT INTO oncegate_document (kind, name, version, body, changed_at) VALUES (?, ?, 1, ?, ?)"
    " ON CONFLICT (kind, name) DO UPDATE"
    " SET version = version + 1, body = excluded.body, changed_at = excluded.changed_at"
    " WHERE oncegate_document.body IS NULL"
)
_UPDATE: Final = (
    "UPDATE oncegate_document SET version = version + 1, body = ?, changed_at = ?"
    " WHERE kind = ? AND name = ? AND version = ? AND body IS NOT NULL"
)
_READ: Final = (
    "SELECT kind, name, version, body, changed_at FROM oncegate_document"
    " WHERE kind = ? AND name = ? AND body IS NOT NULL"
)
_LIST: Final = (
    "SELECT kind, name, version, body, changed_at FROM oncegate_document"
    " WHERE kind = ? AND body IS NOT NULL ORDER BY name"
)


class SqliteRegistry:
    """Change, read, list."""

    _connection: sqlite3.Connection

    def _log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        raise NotImplementedError

    def change_document(self, change: DocumentChange) -> bool:
        """Writes a document where its version is still the one that was seen."""
        if change.version == 0:
            row = (change.kind, change.name, change.body, change.at_ms)
            changed = self._connection.execute(_INSERT, row).rowcount
        else:
            place = (change.kind, change.name, change.version)
            changed = self._connection.execute(_UPDATE, (change.body, change.at_ms, *place)).rowcount
        if changed and change.recorded_as is not None:
            self._log(0, change.recorded_as, change.at_ms, change.actor, change.note)
        return bool(changed)

    def document(self, kind: str, name: str) -> Document | None:
        """Reads one document."""
        row = self._connection.execute(_READ, (kind, name)).fetchone()
        return None if row is None else Document(*row)

    def documents(self, kind: str) -> list[Document]:
        """Reads all documents of a kind."""
        return [Document(*row) for row in self._connection.execute(_LIST, (kind,))]
