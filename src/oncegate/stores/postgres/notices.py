"""Notices on PostgreSQL. Mixed into the session."""

from __future__ import annotations

from typing import Any, Final

from oncegate.store.notices import Notice, Posting

SWEPT_AT_ONCE_MAX: Final = 100

_POST: Final = """
INSERT INTO oncegate_notice AS known (kind, name, writer, body, told_at, posted, until)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (kind, name, writer) DO UPDATE
SET body = excluded.body, told_at = excluded.told_at, posted = excluded.posted, until = excluded.until
WHERE NOT %s OR known.until <= excluded.posted
RETURNING 1
"""
# Rows that somebody else is writing or sweeping are left: nobody waits here, so nobody can wait in a ring.
_SWEEP: Final = f"""
DELETE FROM oncegate_notice WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM oncegate_notice
    WHERE kind = %s AND (until <= %s OR posted < (
        SELECT posted FROM oncegate_notice WHERE kind = %s ORDER BY posted DESC LIMIT 1 OFFSET %s))
    LIMIT {SWEPT_AT_ONCE_MAX} FOR UPDATE SKIP LOCKED))
"""
_READ: Final = """
SELECT kind, name, writer, body, told_at, greatest(0, %s - posted) FROM oncegate_notice
WHERE kind = %s AND (%s::text IS NULL OR name = %s) AND until > %s
ORDER BY name COLLATE "C", writer COLLATE "C"
"""


class PostgresNotices:
    """Post and read."""

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def now_ticks(self) -> int:
        """The ledger's own time."""
        raise NotImplementedError

    def post(self, posting: Posting) -> bool:
        """Puts a notice up, unless it had to be the first and was not."""
        self._begin()
        now = self.now_ticks()
        row = (posting.kind, posting.name, posting.writer, posting.body, posting.at_ms)
        is_up = bool(self._query(_POST, (*row, now, now + posting.keep_ms, posting.must_be_first)))
        self._query(_SWEEP, (posting.kind, now, posting.kind, posting.kept_max - 1))
        return is_up

    def notices(self, kind: str, name: str | None = None) -> list[Notice]:
        """Reads what is up."""
        now = self.now_ticks()
        return [Notice(*row) for row in self._query(_READ, (now, kind, name, name, now))]
