"""Second resources of keys and targets on the embedded ledger. Mixed into the session."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from oncegate.store import (
    EntryDetail,
    LateResource,
    LogKind,
    ResourceDismissal,
    ResourceSeen,
    SecondCount,
    SecondResource,
)
from oncegate.stores.shared.second_resources import (
    COUNT,
    READ,
    counts_of,
    late_note,
    second_note,
    second_of,
    word_kind,
)
from oncegate.stores.sqlite.names import Names

_SEE: Final = """
INSERT INTO oncegate_target AS known (about, entry, resource, until) VALUES (?, ?, ?, ?)
ON CONFLICT (about) DO UPDATE SET
    before_entry = CASE WHEN known.resource <> excluded.resource THEN known.entry END,
    before_resource = known.resource, before_until = known.until,
    entry = excluded.entry, resource = excluded.resource, until = max(known.until, excluded.until)
RETURNING before_entry, before_resource, before_until
"""
# Of two resources one is the second: the same two the other way round are no further finding.
_FIND: Final = (
    "INSERT INTO oncegate_second"
    " (about, target, step, place, entry, resource, other, other_resource, found_at)"
    " SELECT ?1, ?2, ?3, ?4, id, ?5, ?6, ?7, ?8 FROM oncegate_entry WHERE id = ?9 AND NOT EXISTS ("
    "SELECT 1 FROM oncegate_second WHERE about = ?1 AND resource = ?7 AND other_resource = ?5)"
    " ON CONFLICT (about, resource) DO NOTHING"
)
_READ: Final = READ.format(place="?")
_DISMISS: Final = (
    "UPDATE oncegate_second SET dismissed_at = ?, dismissed_by = ?, note = ?"
    " WHERE id = ? AND dismissed_at IS NULL RETURNING entry"
)
_TRIM: Final = (
    "DELETE FROM oncegate_target WHERE about IN (SELECT about FROM oncegate_target WHERE until < ? LIMIT ?)"
)


class SqliteResources:
    """Note late ones, read, dismiss, trim."""

    _connection: sqlite3.Connection
    _names: Names

    def _log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        raise NotImplementedError

    def detail(self, entry_id: int) -> EntryDetail | None:
        """One entry; the census knows it."""
        raise NotImplementedError

    def _see_resources(self, seen: Sequence[ResourceSeen]) -> None:
        """Keeps each target's latest resource, and finds those that had another one."""
        for one in seen:
            row = (one.about, one.entry_id, one.resource, one.until_ms)
            before, resource, until = self._connection.execute(_SEE, row).fetchall()[0]
            if before is None or before == one.entry_id or until < one.at_ms:
                continue
            found = (one.about, one.target, "", one.place, one.resource, before, resource, one.at_ms)
            if self._connection.execute(_FIND, (*found, one.entry_id)).rowcount == 1:
                kind = LogKind.SECOND_RESOURCE
                self._log(one.entry_id, kind, one.at_ms, one.actor, second_note(one, resource, before))
                self._log(before, kind, one.at_ms, one.actor, second_note(one, one.resource, one.entry_id))

    def note_late(self, late: Sequence[LateResource]) -> list[bool]:
        """Records what late workers brought back."""
        return [self._note_late(one) for one in late]

    def _note_late(self, one: LateResource) -> bool:
        found = (one.about, "", one.step, one.place, one.resource, one.entry_id, None, one.at_ms)
        if self._connection.execute(_FIND, (*found, one.entry_id)).rowcount != 1:
            return False
        self._log(one.entry_id, LogKind.SECOND_RESOURCE, one.at_ms, one.actor, late_note(one))
        return True

    def second_resources(self, after: int, limit: int) -> list[SecondResource]:
        """Reads open findings."""
        rows = self._connection.execute(_READ, (after, limit)).fetchall()
        return [second_of(row, self.detail) for row in rows]

    def second_counts(self) -> list[SecondCount]:
        """Counts open findings."""
        return counts_of(self._connection.execute(COUNT).fetchall())

    def dismiss_resource(self, dismissal: ResourceDismissal) -> bool:
        """Notes a person's word."""
        item, actor = dismissal, self._names.number(dismissal.actor)
        word = (item.at_ms if item.closes else None, actor, item.note, item.number)
        rows = self._connection.execute(_DISMISS, word).fetchall()
        for (entry,) in rows:
            self._log(entry, word_kind(item), item.at_ms, item.actor, item.note)
        return bool(rows)

    def trim_targets(self, before_ms: int, limit: int) -> int:
        """Forgets targets whose time is over."""
        return self._connection.execute(_TRIM, (before_ms, limit)).rowcount
