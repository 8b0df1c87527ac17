"""Forgetting on the embedded ledger. Mixed into the session.

Entries are numbered in order of arrival, so what is old lies together at the low end: the walk follows the
table itself and needs no index by time. Must raise the floor in the same transaction that removes an
entry, or its number and fence could be given out again.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from oncegate.model.retention import Sighting, believe
from oncegate.store import EVERY_TENANT, Due, Forgetting, LogKind, Tenants, UnusedNames
from oncegate.stores.shared.retention import (
    IS_REFUSED,
    SEEN_STATE,
    judge_rows,
    note_of,
    read_sighting,
    write_sighting,
)
from oncegate.stores.shared.unused_names import UNUSED_MS, USES
from oncegate.stores.sqlite.names import Names
from oncegate.stores.sqlite.removing import BELONGINGS, RAISE_FLOOR

_NEXT: Final = (
    f"SELECT id, surface, {SEEN_STATE}, received_at, coalesce(settled_at, received_at), tenant"
    " FROM oncegate_entry"
    " WHERE id > ? ORDER BY id LIMIT ?"
)
_FORGET: Final = (
    "DELETE FROM oncegate_entry WHERE id = ? AND surface = ? AND received_at < ?"
    " AND coalesce(settled_at, received_at) < ?"
    " AND (tenant IN (SELECT value FROM json_each(?))) <> ?"
    f" AND (state IN (2, 3) OR (? AND {IS_REFUSED})) RETURNING id, fence"
)
_USES: Final = (*USES, ("entry", "declared"))
_SEEN: Final = "SELECT value FROM oncegate_meta WHERE name = 'sighting'"
_NEWEST: Final = "SELECT (SELECT received_at FROM oncegate_entry ORDER BY id DESC LIMIT 1)"
_SEE: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES ('sighting', ?)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


_UNUSED: Final = f"""
SELECT id, unused_since FROM oncegate_name
WHERE id NOT IN ({" UNION ".join(f"SELECT {c} FROM oncegate_{t} WHERE {c} IS NOT NULL" for t, c in _USES)})
  AND (SELECT count(*) FROM (SELECT 1 FROM oncegate_name LIMIT ?1 + 1)) > ?1
ORDER BY id LIMIT ?2
"""
_MARK: Final = "UPDATE oncegate_name SET unused_since = ? WHERE id = ? AND unused_since IS NULL"
# The newest stays: SQLite numbers the next name after it.
_REMOVE: Final = (
    "DELETE FROM oncegate_name WHERE id = ? AND unused_since <= ?"
    " AND id < (SELECT max(id) FROM oncegate_name)"
)


class SqlitePruning:
    """Due, forget, sight, unused names."""

    _connection: sqlite3.Connection
    _names: Names

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def _log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        raise NotImplementedError

    def due(
        self,
        surface: str,
        before_ms: int,
        now_ms: int,
        after_id: int,
        limit: int,
        *,
        refused: bool = False,
        tenants: Tenants = EVERY_TENANT,
    ) -> Due:
        """Looks at the next entries in order of arrival."""
        rows = self._connection.execute(_NEXT, (after_id, limit)).fetchall()
        number = self._names.find(surface)
        return judge_rows(
            rows,
            number,
            before_ms,
            now_ms,
            after_id=after_id,
            limit=limit,
            refused=refused,
            tenants=self._numbers(tenants),
            others=tenants.others,
        )

    def _numbers(self, tenants: Tenants) -> list[int]:
        """The numbers of tenants that were ever written."""
        found = (self._names.find(name) for name in tenants.names)
        return [number for number in found if number is not None]

    def forget(self, wanted: Forgetting) -> int:
        """Removes entries with all that belongs to them, and raises the floor."""
        removed = self._remove(wanted)
        if not removed:
            return 0
        gone = [(entry,) for entry, _ in removed]
        for sql in BELONGINGS:
            self._connection.executemany(sql, gone)
        self._connection.execute(RAISE_FLOOR, (max(max(pair) for pair in removed),))
        self._log(0, LogKind.FORGOTTEN, wanted.at_ms, wanted.actor, note_of(wanted, len(removed)))
        return len(removed)

    def _remove(self, wanted: Forgetting) -> list[tuple[int, int]]:
        surface, before = self._names.find(wanted.surface), wanted.before_ms
        tenants = str(self._numbers(wanted.tenants))
        removed: list[tuple[Any, ...]] = []
        for entry in sorted(set(wanted.entries)):
            asked = (entry, surface, before, before, tenants, wanted.tenants.others, wanted.refused)
            removed += self._connection.execute(_FORGET, asked).fetchall()
        return [(entry, fence) for entry, fence in removed]

    def sight(self, wall_ms: int, *, is_certain: bool = False) -> Sighting:
        """Notes the wall time beside the ledger's own."""
        row, now = self._connection.execute(_SEEN).fetchone(), self.now_ticks()
        (newest,) = self._connection.execute(_NEWEST).fetchone()
        last = read_sighting(row and row[0])
        seen = Sighting(wall_ms, now) if is_certain else believe(last, wall_ms, now, newest_ms=newest)
        self._connection.execute(_SEE, (write_sighting(seen),))
        return seen

    def unused_names(self, kept: int, limit: int) -> UnusedNames:
        """Reads every table that uses names, once."""
        rows, before = (
            self._connection.execute(_UNUSED, (kept, limit)).fetchall(),
            self.now_ticks() - UNUSED_MS,
        )
        fresh = tuple(number for number, since in rows if since is None)
        due = tuple(number for number, since in rows if since is not None and since <= before)
        return UnusedNames(fresh, due=due)

    def drop_names(self, found: UnusedNames) -> int:
        """Marks and removes by number; a process that looked a name up meanwhile has removed its mark."""
        now = self.now_ticks()
        self._connection.executemany(_MARK, [(now, number) for number in found.fresh])
        removed = self._connection.executemany(_REMOVE, [(number, now - UNUSED_MS) for number in found.due])
        self._names.forget()
        return max(removed.rowcount, 0)
