"""Notices on the embedded ledger. Mixed into the session."""

from __future__ import annotations

import sqlite3
from typing import Final

from oncegate.store.notices import Notice, Posting

_POST: Final = (
    "INSERT INTO oncegate_notice (kind, name, writer, body, told_at, posted, until)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (kind, name, writer) DO UPDATE SET body = excluded.body, told_at = excluded.told_at,"
    " posted = excluded.posted, until = excluded.until"
    " WHERE NOT ? OR oncegate_notice.until <= excluded.posted"
)
_SWEEP: Final = (
    "DELETE FROM oncegate_notice WHERE kind = ?1 AND (until <= ?2 OR posted <"
    " (SELECT posted FROM oncegate_notice WHERE kind = ?1 ORDER BY posted DESC LIMIT 1 OFFSET ?3))"
)
_READ: Final = (
    "SELECT kind, name, writer, body, told_at, max(0, ?1 - posted) FROM oncegate_notice"
    " WHERE kind = ?2 AND (?3 IS NULL OR name = ?3) AND until > ?1 ORDER BY name, writer"
)


class SqliteNotices:
    """Post and read."""

    _connection: sqlite3.Connection

    def now_ticks(self) -> int:
        """The ledger's own time."""
        raise NotImplementedError

    def post(self, posting: Posting) -> bool:
        """Puts a notice up, unless it had to be the first and was not."""
        now = self.now_ticks()
        row = (posting.kind, posting.name, posting.writer, posting.body, posting.at_ms)
        times = (now, now + posting.keep_ms, posting.must_be_first)
        is_up = self._connection.execute(_POST, (*row, *times)).rowcount > 0
        self._connection.execute(_SWEEP, (posting.kind, now, posting.kept_max - 1))
        return is_up

    def notices(self, kind: str, name: str | None = None) -> list[Notice]:
        """Reads what is up."""
        return [Notice(*row) for row in self._connection.execute(_READ, (self.now_ticks(), kind, name))]
