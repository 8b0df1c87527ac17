"""Named documents on PostgreSQL. Mixed into the session.

A removed document stays as a row without a body, so that its versions go on counting.
"""

from __future__ import annotations

from typing import Any, Final

from oncegate.store import Document, DocumentChange
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.names import Names

_INSERT: Final = """
INSERT INTO oncegate_document AS known (kind, name, version, body, changed_at) VALUES (%s, %s, 1, %s, %s)
ON CONFLICT (kind, name) DO UPDATE
SET version = known.version + 1, body = excluded.body, changed_at = excluded.changed_at
WHERE known.body IS NULL
RETURNING version
"""
_UPDATE: Final = """
UPDATE oncegate_document SET version = version + 1, body = %s, changed_at = %s
WHERE kind = %s AND name = %s AND version = %s AND body IS NOT NULL
RETURNING version
"""
_READ: Final = """
SELECT kind, name, version, body, changed_at FROM oncegate_document
WHERE kind = %s AND name = %s AND body IS NOT NULL
"""
LIST_DOCUMENTS: Final = """
SELECT kind, name, version, body, changed_at FROM oncegate_document
WHERE kind = %s AND body IS NOT NULL ORDER BY name COLLATE "C"
"""


class PostgresRegistry:
    """Change, read, list."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def change_document(self, change: DocumentChange) -> bool:
        """Writes a document where its version is still the one that was seen."""
        self._begin()
        if change.version == 0:
            row = (change.kind, change.name, change.body, change.at_ms)
            changed = self._query(_INSERT, row)
        else:
            place = (change.kind, change.name, change.version)
            changed = self._query(_UPDATE, (change.body, change.at_ms, *place))
        if changed and change.recorded_as is not None:
            actor = self._names.learn({change.actor})[change.actor]
            record = (0, change.recorded_as.value, change.at_ms, actor, change.note)
            self._query(statements.LOG, record)
        return bool(changed)

    def document(self, kind: str, name: str) -> Document | None:
        """Reads one document."""
        rows = self._query(_READ, (kind, name))
        return Document(*rows[0]) if rows else None

    def documents(self, kind: str) -> list[Document]:
        """Reads all documents of a kind."""
        return [Document(*row) for row in self._query(LIST_DOCUMENTS, (kind,))]
